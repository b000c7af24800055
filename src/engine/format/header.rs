// SPDX-License-Identifier: GPL-2.0

//! The header of a component.
//!
//! | offset | size | field                                             |
//! |-------:|-----:|---------------------------------------------------|
//! |      0 |    4 | id of the component                               |
//! |      4 |    8 | version: u32 major, u32 minor                     |
//! |     12 |    8 | size of what follows the header, with exceptions  |

use super::field::{Reader, Writer};
use super::{Component, FormatError, Version};

/// The header of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// What follows.
    pub(super) component: Component,
    /// Its version.
    pub(super) version: Version,
    /// Its size.
    pub(super) size: u64,
}

impl Header {
    pub(super) const fn new(component: Component, major: u32, minor: u32, size: u64) -> Self {
        Self {
            component,
            version: Version::new(major, minor),
            size,
        }
    }

    pub(super) fn encode(&self, writer: &mut Writer<'_>) -> Result<(), FormatError> {
        let id = id(self.component).ok_or(FormatError::OutOfRange("component"))?;
        writer.u32(id)?;
        encode_version(self.version, writer)?;
        writer.u64(self.size)
    }

    /// Reads a header that must be of `component`; its version and size are yet to be checked.
    pub(super) fn decode(
        reader: &mut Reader<'_>,
        component: Component,
    ) -> Result<Self, FormatError> {
        let found = reader.u32()?;
        if id(component) != Some(found) {
            return Err(FormatError::IncorrectComponent {
                expected: component,
                found,
            });
        }
        Ok(Self {
            component,
            version: decode_version(reader)?,
            size: reader.u64()?,
        })
    }

    /// Reads a header that must be this one.
    pub(super) fn demand(&self, reader: &mut Reader<'_>) -> Result<(), FormatError> {
        let found = Self::decode(reader, self.component)?;
        self.check_version(&found)?;
        if found.size != self.size {
            return Err(self.bad_size(&found));
        }
        Ok(())
    }

    /// Reads a header that must be this one, or one of a larger structure.
    pub(super) fn demand_at_least(&self, reader: &mut Reader<'_>) -> Result<(), FormatError> {
        let found = Self::decode(reader, self.component)?;
        self.check_version(&found)?;
        if found.size < self.size {
            return Err(self.bad_size(&found));
        }
        Ok(())
    }

    /// Checks the version of a header against this one.
    pub(super) fn check_version(&self, found: &Self) -> Result<(), FormatError> {
        check_version(self.component, self.version, found.version)
    }

    /// The error for a header whose size is not that of this one.
    pub(super) fn bad_size(&self, found: &Self) -> FormatError {
        FormatError::UnsupportedSize {
            component: self.component,
            expected: self.size,
            found: found.size,
        }
    }
}

/// Checks a version.
pub(super) fn check_version(
    component: Component,
    expected: Version,
    found: Version,
) -> Result<(), FormatError> {
    if expected == found {
        Ok(())
    } else {
        Err(FormatError::UnsupportedVersion {
            component,
            expected,
            found,
        })
    }
}

pub(super) fn decode_version(reader: &mut Reader<'_>) -> Result<Version, FormatError> {
    Ok(Version::new(reader.u32()?, reader.u32()?))
}

pub(super) fn encode_version(version: Version, writer: &mut Writer<'_>) -> Result<(), FormatError> {
    writer.u32(version.major)?;
    writer.u32(version.minor)
}

/// The id of a component that has a header.
const fn id(component: Component) -> Option<u32> {
    match component {
        Component::SuperBlock => Some(0),
        Component::Layout => Some(1),
        Component::RecoveryJournal => Some(2),
        Component::SlabDepot => Some(3),
        Component::BlockMap => Some(4),
        Component::Geometry => Some(5),
        Component::Volume
        | Component::Vdo
        | Component::BlockMapPage
        | Component::CompressedBlock => None,
    }
}

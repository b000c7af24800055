// SPDX-License-Identifier: GPL-2.0

//! What can be wrong with bytes from the disk, said to the person who can act.

use core::fmt;

use super::required_flags::RequiredFlags;
use crate::engine::units::Nonce;

/// The version of a structure. Versions are compared for equality; no minor is compatible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Changes when the structure does.
    pub major: u32,
    /// Changes when an upgrade in place changes the structure.
    pub minor: u32,
}

impl Version {
    /// Makes a version.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A structure with a version of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    /// The block that carries the super block's components.
    SuperBlock,
    /// The table of partitions.
    Layout,
    /// The recovery journal's part of the super block, or the journal itself.
    RecoveryJournal,
    /// The slab depot's part of the super block.
    SlabDepot,
    /// The block map's part of the super block.
    BlockMap,
    /// The geometry block.
    Geometry,
    /// The volume as a whole.
    Volume,
    /// The volume's own part of the super block.
    Vdo,
    /// A page of the block map.
    BlockMapPage,
    /// A block of compressed fragments.
    CompressedBlock,
}

impl Component {
    /// What the component is called in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SuperBlock => "super block",
            Self::Layout => "layout",
            Self::RecoveryJournal => "recovery journal",
            Self::SlabDepot => "slab depot",
            Self::BlockMap => "block map",
            Self::Geometry => "geometry block",
            Self::Volume => "volume",
            Self::Vdo => "vdo component",
            Self::BlockMapPage => "block map page",
            Self::CompressedBlock => "compressed block",
        }
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why bytes from the disk are not what they should be, or a volume cannot be laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FormatError {
    /// The device does not start with a volume.
    BadMagic,
    /// The bytes are not those that were written.
    Checksum {
        /// The structure.
        component: Component,
        /// The checksum that goes with the bytes.
        expected: u32,
        /// The checksum that is stored.
        found: u32,
    },
    /// The structure is of another version than the one known here.
    UnsupportedVersion {
        /// The structure.
        component: Component,
        /// The version known here.
        expected: Version,
        /// The version on the disk.
        found: Version,
    },
    /// The structure has another size than its version has.
    UnsupportedSize {
        /// The structure.
        component: Component,
        /// The size of the known version.
        expected: u64,
        /// The size on the disk.
        found: u64,
    },
    /// Another structure is where this one should be.
    IncorrectComponent {
        /// The structure that should be here.
        expected: Component,
        /// The id that is here.
        found: u32,
    },
    /// The parts of the metadata belong to different volumes.
    BadNonce {
        /// The volume's nonce.
        expected: Nonce,
        /// The nonce found.
        found: Nonce,
    },
    /// The saved state of the volume is none that is known.
    UnknownState(u32),
    /// The volume requires a feature that is not known here.
    UnknownFeature {
        /// Its bit among the required flags.
        bit: u32,
    },
    /// The numbers of the volume contradict each other; says which rule is broken.
    BadConfiguration(&'static str),
    /// The table line and the volume disagree.
    ParameterMismatch {
        /// What they disagree about.
        parameter: &'static str,
        /// What the volume says.
        volume: u64,
        /// What the table line says.
        table: u64,
    },
    /// The device is too small.
    NoSpace {
        /// How many blocks are needed.
        required: u64,
        /// How many blocks there are.
        available: u64,
    },
    /// The slabs are too small for a device of this size.
    TooManySlabs {
        /// How many slabs there would be.
        slabs: u64,
        /// How many there may be.
        limit: u64,
    },
    /// A number lies outside what it counts; says which.
    OutOfRange(&'static str),
    /// A journal block is not a valid one; says why.
    CorruptJournal(&'static str),
    /// A block map page belongs elsewhere.
    BadPage {
        /// Where it was read.
        expected: u64,
        /// Where it says it belongs.
        found: u64,
    },
    /// A compressed block has no such fragment, or its sizes run past the block.
    BadFragment,
    /// A structure ends before its last field.
    Truncated,
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::BadMagic => f.write_str("no VDO volume here: the device does not start with a geometry block"),
            Self::Checksum {
                component,
                expected,
                found,
            } => write!(
                f,
                "{component} is damaged: its checksum should be {expected:#010x}, not {found:#010x}"
            ),
            Self::UnsupportedVersion {
                component,
                expected,
                found,
            } => write!(
                f,
                "{component} version mismatch, expected {expected}, got {found}: the volume was made by other software than this can read"
            ),
            Self::UnsupportedSize {
                component,
                expected,
                found,
            } => write!(
                f,
                "{component} size mismatch, expected {expected} bytes, got {found}: the volume was made by other software than this can read"
            ),
            Self::IncorrectComponent { expected, found } => {
                write!(f, "{expected} expected, but component {found} is stored there")
            }
            Self::BadNonce { expected, found } => write!(
                f,
                "metadata of another volume: nonce should be {:#x}, not {:#x}",
                expected.get(),
                found.get()
            ),
            Self::UnknownState(state) => write!(
                f,
                "volume state {state} is unknown: check the volume with the tools that last wrote it"
            ),
            Self::UnknownFeature { bit } => write!(
                f,
                "the volume requires feature {bit} ({}), which this driver does not have: use software that does",
                RequiredFlags::name_of(bit)
            ),
            Self::BadConfiguration(rule) => write!(f, "the volume's configuration is invalid: {rule}"),
            Self::ParameterMismatch {
                parameter,
                volume,
                table,
            } => write!(
                f,
                "{parameter} of the volume is {volume}, the table line says {table}: correct the table line"
            ),
            Self::NoSpace {
                required,
                available,
            } => write!(
                f,
                "the device is too small: {required} blocks of 4096 bytes are needed, {available} are there"
            ),
            Self::TooManySlabs { slabs, limit } => write!(
                f,
                "the slabs are too small: there would be {slabs} of them, at most {limit} are possible"
            ),
            Self::OutOfRange(what) => write!(f, "{what} is out of range"),
            Self::CorruptJournal(why) => write!(f, "journal block is corrupt: {why}"),
            Self::BadPage { expected, found } => write!(
                f,
                "block map page {expected} is corrupt: it says that it is page {found}"
            ),
            Self::BadFragment => f.write_str("compressed block has no such fragment"),
            Self::Truncated => f.write_str("structure ends before its last field"),
        }
    }
}

impl core::error::Error for FormatError {}

// SPDX-License-Identifier: GPL-2.0

//! The geometry block: the first block of the device, which says where everything else starts.
//!
//! | 5.0 | 4.0 | size | field                                                         |
//! |----:|----:|-----:|---------------------------------------------------------------|
//! |   0 |   0 |    8 | magic `dmvdo001`                                              |
//! |   8 |   8 |   20 | header: id 5; its size is 101 or 93, from magic to checksum   |
//! |  28 |  28 |    4 | unused, kept as found                                         |
//! |  32 |  32 |    8 | nonce                                                         |
//! |  40 |  40 |   16 | uuid                                                          |
//! |  56 |   - |    8 | bio offset in blocks                                          |
//! |  64 |  56 |   12 | index region: u32 id, u64 start                               |
//! |  76 |  68 |   12 | data region: u32 id, u64 start                                |
//! |  88 |  80 |    9 | index, see [`index_config`](super::index_config)              |
//! |  97 |  89 |    4 | checksum of everything before it                              |
//!
//! Written only when a volume is formatted.

use super::field::{Reader, Writer};
use super::header::Header;
use super::index_config::IndexConfig;
use super::{checksum, Component, FormatError};
use crate::engine::units::{Block, DeviceBlock, Nonce, Pbn, BLOCK_SIZE, MAX_PHYSICAL_BLOCKS};

const MAGIC: [u8; 8] = *b"dmvdo001";
const HEADER_5: Header = Header::new(Component::Geometry, 5, 0, 101);
const HEADER_4: Header = Header::new(Component::Geometry, 4, 0, 93);
const CHECKSUM_5: usize = 97;
const CHECKSUM_4: usize = 89;

/// Which of the two forms a geometry block has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GeometryVersion {
    /// 4.0, without a bio offset.
    V4,
    /// 5.0.
    V5,
}

/// A part of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// What the region says it is. Not looked at.
    pub id: u32,
    /// Its first block.
    pub start: Pbn,
}

/// The geometry of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// The form of the block.
    pub version: GeometryVersion,
    /// Formerly a release number. Also goes into the super block.
    pub unused: u32,
    /// The number in all metadata of the volume.
    pub nonce: Nonce,
    /// The identity of the volume.
    pub uuid: [u8; 16],
    /// How many blocks the device starts after block 0 of the volume.
    pub bio_offset: u64,
    /// Where the index is.
    pub index_region: Region,
    /// Where the super block and everything that follows it is.
    pub data_region: Region,
    /// What the index is like.
    pub index: IndexConfig,
}

impl Geometry {
    /// The block of the device that has the geometry, whatever the bio offset.
    pub const DEVICE_BLOCK: DeviceBlock = DeviceBlock::ZERO;

    /// Reads a geometry block.
    pub fn decode(block: &Block) -> Result<Self, FormatError> {
        let mut reader = Reader::new(block);
        if reader.bytes()? != MAGIC {
            return Err(FormatError::BadMagic);
        }
        let header = Header::decode(&mut reader, Component::Geometry)?;
        let (version, expected, checksum_at) = if header.version.major <= 4 {
            (GeometryVersion::V4, HEADER_4, CHECKSUM_4)
        } else {
            (GeometryVersion::V5, HEADER_5, CHECKSUM_5)
        };
        expected.check_version(&header)?;
        if header.size != expected.size {
            return Err(expected.bad_size(&header));
        }

        // What the bytes say is looked at only once they are known to be the ones written.
        let (covered, rest) = block
            .split_at_checked(checksum_at)
            .ok_or(FormatError::Truncated)?;
        let found = Reader::new(rest).u32()?;
        checksum::check(Component::Geometry, covered, found)?;

        let geometry = Self {
            version,
            unused: reader.u32()?,
            nonce: Nonce::new(reader.u64()?),
            uuid: reader.bytes()?,
            bio_offset: match version {
                GeometryVersion::V4 => 0,
                GeometryVersion::V5 => reader.u64()?,
            },
            index_region: Region::decode(&mut reader)?,
            data_region: Region::decode(&mut reader)?,
            index: IndexConfig::decode(&mut reader)?,
        };
        geometry.validate()?;
        Ok(geometry)
    }

    /// Makes `block` the geometry block.
    pub fn encode(&self, block: &mut Block) -> Result<(), FormatError> {
        *block = [0; BLOCK_SIZE];
        let (header, checksum_at) = match self.version {
            GeometryVersion::V4 => (HEADER_4, CHECKSUM_4),
            GeometryVersion::V5 => (HEADER_5, CHECKSUM_5),
        };
        let (covered, rest) = block
            .split_at_mut_checked(checksum_at)
            .ok_or(FormatError::Truncated)?;
        let mut writer = Writer::new(covered);
        writer.bytes(MAGIC)?;
        header.encode(&mut writer)?;
        writer.u32(self.unused)?;
        writer.u64(self.nonce.get())?;
        writer.bytes(self.uuid)?;
        if self.version == GeometryVersion::V5 {
            writer.u64(self.bio_offset)?;
        }
        self.index_region.encode(&mut writer)?;
        self.data_region.encode(&mut writer)?;
        self.index.encode(&mut writer)?;
        Writer::new(rest).u32(checksum::checksum(covered))
    }

    fn validate(&self) -> Result<(), FormatError> {
        if self.index_region.start > self.data_region.start {
            return Err(FormatError::BadConfiguration(
                "the index region starts after the data region",
            ));
        }
        if self.bio_offset > MAX_PHYSICAL_BLOCKS || self.bio_offset > self.index_region.start.get()
        {
            return Err(FormatError::BadConfiguration(
                "the bio offset is larger than the start of the index region",
            ));
        }
        Ok(())
    }

    /// Blocks between the start of the index and the super block.
    pub fn index_blocks(&self) -> u64 {
        self.data_region
            .start
            .checked_offset_from(self.index_region.start)
            .unwrap_or(0)
    }

    /// The block of the device that stores block `pbn` of the volume. `None` if it lies before
    /// the start of the device. Not for the geometry block itself.
    pub fn device_block(&self, pbn: Pbn) -> Option<DeviceBlock> {
        pbn.get().checked_sub(self.bio_offset).map(DeviceBlock::new)
    }
}

impl Region {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        Ok(Self {
            id: reader.u32()?,
            start: Pbn::new(reader.u64()?).ok_or(FormatError::OutOfRange("start of a region"))?,
        })
    }

    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), FormatError> {
        writer.u32(self.id)?;
        writer.u64(self.start.get())
    }
}

/// Whether `block` is all zeros: a device that nobody formatted.
pub fn is_unformatted(block: &Block) -> bool {
    block.iter().all(|byte| *byte == 0)
}

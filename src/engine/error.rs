// SPDX-License-Identifier: GPL-2.0

//! What can go wrong in the engine. The target ring maps these to errno and block status in one place.

use core::fmt;

use crate::engine::env::IoError;
use crate::engine::format::FormatError;
use crate::rt::AllocError;

/// An error of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// The device below failed.
    Io(IoError),
    /// The volume is in read-only mode.
    ReadOnly,
    /// No free block is left and the data is not a duplicate.
    NoSpace,
    /// The block map holds an entry that cannot be.
    BadMapping,
    /// A logical block beyond the end of the volume.
    OutOfRange,
    /// An on-disk structure is not what it has to be.
    Format(FormatError),
    /// Memory could not be had at load.
    NoMemory,
    /// Metadata that contradict each other.
    Corrupt(&'static str),
    /// Something this driver cannot do with this volume; the text says what and how to get out of it.
    Unsupported(&'static str),
    /// The table line does not fit the volume.
    Mismatch(&'static str),
    /// An operation of the same kind is under way.
    Busy,
    /// The volume was not resumed yet, or is suspended.
    Suspended,
    /// The volume is being stopped.
    ShuttingDown,
}

impl From<AllocError> for Error {
    fn from(_: AllocError) -> Self {
        Error::NoMemory
    }
}

impl From<FormatError> for Error {
    fn from(error: FormatError) -> Self {
        Error::Format(error)
    }
}

impl From<IoError> for Error {
    fn from(error: IoError) -> Self {
        Error::Io(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io(IoError::Io) => f.write_str("the device reported an I/O error"),
            Error::Io(IoError::Timeout) => f.write_str("the device timed out"),
            Error::Io(IoError::NoSpace) => f.write_str("the device below has no space left"),
            Error::Io(IoError::Removed) => f.write_str("the device is gone"),
            Error::ReadOnly => f.write_str("the volume is read-only"),
            Error::NoSpace => f.write_str("the volume is full"),
            Error::BadMapping => f.write_str("invalid block map entry"),
            Error::OutOfRange => f.write_str("block beyond the end of the volume"),
            Error::Format(error) => error.fmt(f),
            Error::NoMemory => f.write_str("out of memory"),
            Error::Corrupt(what) => write!(f, "corrupt metadata: {what}"),
            Error::Unsupported(what) | Error::Mismatch(what) => f.write_str(what),
            Error::Busy => f.write_str("another operation is in progress"),
            Error::Suspended => f.write_str("the volume is suspended"),
            Error::ShuttingDown => f.write_str("the volume is stopping"),
        }
    }
}

// SPDX-License-Identifier: GPL-2.0

//! Every error of the driver as the kernel's callers see it: the one place for the mapping.
//!
//! [`Errno`] is for control paths, [`BlockStatus`] for requests. The code that binds to the kernel
//! translates both to the kernel's own constants. Pure values: no locks, nothing to await.

use crate::engine::env::{IoError, RequestError};
use crate::engine::error::Error;
use crate::engine::format::FormatError;
use crate::rt::AllocError;
use crate::target::compression_type::{CompressionTypeError, NeedsUpgrade};
use crate::target::messages::MessageError;
use crate::target::reload::ReloadError;
use crate::target::table_error::TableError;
use crate::target::table_line::AgeOutOfRange;

/// What a control path returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errno {
    /// `EIO`
    Io,
    /// `ENOMEM`
    NoMemory,
    /// `EBUSY`
    Busy,
    /// `EINVAL`
    Invalid,
    /// `ENOSPC`
    NoSpace,
}

impl Errno {
    /// The positive number, the same on every architecture that this driver supports.
    pub const fn number(self) -> i32 {
        match self {
            Self::Io => 5,
            Self::NoMemory => 12,
            Self::Busy => 16,
            Self::Invalid => 22,
            Self::NoSpace => 28,
        }
    }
}

impl From<Error> for Errno {
    /// What the administrator can put right with another table or another tool is invalid; what
    /// only more space can put right is that; the rest is an I/O error.
    fn from(error: Error) -> Self {
        match error {
            Error::Io(error) => error.into(),
            Error::Format(error) => error.into(),
            Error::NoMemory => Self::NoMemory,
            Error::NoSpace => Self::NoSpace,
            Error::Unsupported(_) | Error::Mismatch(_) => Self::Invalid,
            Error::Busy | Error::Suspended => Self::Busy,
            Error::ReadOnly
            | Error::BadMapping
            | Error::OutOfRange
            | Error::Corrupt(_)
            | Error::ShuttingDown => Self::Io,
        }
    }
}

impl From<IoError> for Errno {
    fn from(error: IoError) -> Self {
        match error {
            IoError::NoSpace => Self::NoSpace,
            IoError::Io | IoError::Timeout | IoError::Removed => Self::Io,
        }
    }
}

impl From<FormatError> for Errno {
    fn from(error: FormatError) -> Self {
        match error {
            FormatError::UnsupportedVersion { .. }
            | FormatError::UnknownFeature { .. }
            | FormatError::BadConfiguration(_)
            | FormatError::ParameterMismatch { .. } => Self::Invalid,
            FormatError::NoSpace { .. } => Self::NoSpace,
            _ => Self::Io,
        }
    }
}

impl From<AllocError> for Errno {
    fn from(_: AllocError) -> Self {
        Self::NoMemory
    }
}

impl From<&TableError<'_>> for Errno {
    fn from(error: &TableError<'_>) -> Self {
        match error {
            TableError::OutOfMemory => Self::NoMemory,
            _ => Self::Invalid,
        }
    }
}

impl From<MessageError> for Errno {
    fn from(error: MessageError) -> Self {
        match error {
            MessageError::Busy => Self::Busy,
            MessageError::Unknown
            | MessageError::UnknownDumpSection
            | MessageError::EstimateCount => Self::Invalid,
        }
    }
}

/// Errors that are always the table's.
macro_rules! invalid {
    ($($error:ty),* $(,)?) => {
        $(impl From<$error> for Errno {
            fn from(_: $error) -> Self {
                Self::Invalid
            }
        })*
    };
}

invalid!(
    ReloadError,
    AgeOutOfRange,
    CompressionTypeError,
    NeedsUpgrade<'_>,
);

/// How a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockStatus {
    /// `BLK_STS_OK`
    Ok,
    /// `BLK_STS_NOSPC`
    NoSpace,
    /// `BLK_STS_IOERR`
    IoError,
}

impl From<Result<(), RequestError>> for BlockStatus {
    fn from(result: Result<(), RequestError>) -> Self {
        match result {
            Ok(()) => Self::Ok,
            Err(RequestError::NoSpace) => Self::NoSpace,
            Err(RequestError::Io | RequestError::ReadOnly | RequestError::OutOfRange) => {
                Self::IoError
            }
        }
    }
}

// SPDX-License-Identifier: GPL-2.0

//! How errors look from outside.

use rvdo_host::engine::env::{IoError, RequestError};
use rvdo_host::engine::error::Error;
use rvdo_host::engine::format::{Component, FormatError, Version};
use rvdo_host::rt::AllocError;
use rvdo_host::target::errno::{BlockStatus, Errno};
use rvdo_host::target::table_error::TableError;

#[test]
fn numbers_are_those_of_linux() {
    for (errno, number) in [
        (Errno::Io, 5),
        (Errno::NoMemory, 12),
        (Errno::Busy, 16),
        (Errno::Invalid, 22),
        (Errno::NoSpace, 28),
    ] {
        assert_eq!(errno.number(), number);
    }
}

#[test]
fn engine_errors_tell_who_can_act() {
    let version = Version::new(67, 0);
    for (error, errno) in [
        // Another table or other software.
        (Error::Mismatch("x"), Errno::Invalid),
        (Error::Unsupported("x"), Errno::Invalid),
        (FormatError::BadConfiguration("x").into(), Errno::Invalid),
        (
            FormatError::ParameterMismatch {
                parameter: "x",
                volume: 1,
                table: 2,
            }
            .into(),
            Errno::Invalid,
        ),
        (
            FormatError::UnsupportedVersion {
                component: Component::Volume,
                expected: version,
                found: version,
            }
            .into(),
            Errno::Invalid,
        ),
        // More space.
        (Error::NoSpace, Errno::NoSpace),
        (Error::Io(IoError::NoSpace), Errno::NoSpace),
        (
            FormatError::NoSpace {
                required: 2,
                available: 1,
            }
            .into(),
            Errno::NoSpace,
        ),
        // Later.
        (Error::Busy, Errno::Busy),
        (Error::Suspended, Errno::Busy),
        (AllocError.into(), Errno::NoMemory),
        // Nobody, short of repair.
        (Error::Io(IoError::Io), Errno::Io),
        (Error::Io(IoError::Timeout), Errno::Io),
        (Error::Io(IoError::Removed), Errno::Io),
        (Error::ReadOnly, Errno::Io),
        (Error::BadMapping, Errno::Io),
        (Error::OutOfRange, Errno::Io),
        (Error::Corrupt("x"), Errno::Io),
        (Error::ShuttingDown, Errno::Io),
        (FormatError::BadMagic.into(), Errno::Io),
        (
            FormatError::TooManySlabs { slabs: 2, limit: 1 }.into(),
            Errno::Io,
        ),
    ] {
        assert_eq!(Errno::from(error), errno, "{error:?}");
    }
    assert_eq!(Errno::from(&TableError::from(AllocError)), Errno::NoMemory);
    assert_eq!(Errno::from(AllocError), Errno::NoMemory);
}

#[test]
fn requests_end_in_one_of_three_ways() {
    for (result, status) in [
        (Ok(()), BlockStatus::Ok),
        (Err(RequestError::NoSpace), BlockStatus::NoSpace),
        (Err(RequestError::Io), BlockStatus::IoError),
        (Err(RequestError::ReadOnly), BlockStatus::IoError),
        (Err(RequestError::OutOfRange), BlockStatus::IoError),
    ] {
        assert_eq!(BlockStatus::from(result), status);
    }
}

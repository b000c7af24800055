// SPDX-License-Identifier: GPL-2.0

//! Bios that came from above, and the words they are described with.
//!
//! An [`OwnedBio`] is a bio that a device-mapper target has taken over: it ends exactly once, with
//! the status given to [`OwnedBio::complete`], or with an I/O error when it is dropped. Nothing
//! here allocates or waits.
//!
//! C headers: [`include/linux/bio.h`](srctree/include/linux/bio.h),
//! [`include/linux/blk_types.h`](srctree/include/linux/blk_types.h)
//!
//! # Examples
//!
//! ```ignore
//! fn serve(mut bio: OwnedBio, block: &[u8; 4096]) {
//!     if bio.operation() != Operation::Read {
//!         return bio.complete(BlockStatus::NOT_SUPPORTED);
//!     }
//!     bio.copy_in(0, block);
//!     bio.complete(BlockStatus::OK);
//! }
//! ```

use core::mem::ManuallyDrop;
use core::ptr::NonNull;

use kernel::prelude::*;

use crate::bindings as b;

/// Bytes of the unit that positions on block devices are counted in.
pub const SECTOR_BYTES: usize = 512;

/// What a bio asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Read data.
    Read,
    /// Write data. Without data and with [`OwnedBio::preflush`], an empty flush.
    Write,
    /// Forget data.
    Discard,
    /// Write zeroes without sending them.
    WriteZeroes,
    /// Anything else, by its number in `enum req_op`.
    Other(u8),
}

/// How an operation on a block device ended: a `blk_status_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockStatus(b::blk_status_t);

impl BlockStatus {
    /// Success.
    pub const OK: Self = Self(b::BLK_STS_OK);
    /// I/O error, cause unknown.
    pub const IO_ERROR: Self = Self(b::BLK_STS_IOERR);
    /// The device cannot do this.
    pub const NOT_SUPPORTED: Self = Self(b::BLK_STS_NOTSUPP);
    /// The device did not answer in time.
    pub const TIMEOUT: Self = Self(b::BLK_STS_TIMEOUT);
    /// No space is left.
    pub const NO_SPACE: Self = Self(b::BLK_STS_NOSPC);
    /// The way to the device failed.
    pub const TRANSPORT: Self = Self(b::BLK_STS_TRANSPORT);
    /// The medium failed.
    pub const MEDIUM: Self = Self(b::BLK_STS_MEDIUM);
    /// The device is gone.
    pub const OFFLINE: Self = Self(b::BLK_STS_OFFLINE);

    pub(super) const fn from_raw(status: b::blk_status_t) -> Self {
        Self(status)
    }

    /// `Ok` for [`BlockStatus::OK`], else the status itself.
    pub fn into_result(self) -> Result<(), Self> {
        match self {
            Self::OK => Ok(()),
            error => Err(error),
        }
    }
}

impl From<BlockStatus> for Error {
    fn from(status: BlockStatus) -> Self {
        // SAFETY: any value may be passed, unknown ones give -EIO.
        Error::from_errno(unsafe { b::blk_status_to_errno(status.0) })
    }
}

/// A bio from above that has to be ended by us.
///
/// # Invariants
///
/// The pointer is to a valid bio that nobody else reads or changes until it is ended.
pub struct OwnedBio(NonNull<b::bio>);

// SAFETY: a bio belongs to no thread, it may be worked on and ended from any.
unsafe impl Send for OwnedBio {}
// SAFETY: through a shared reference the bio's fields and pages are only read.
unsafe impl Sync for OwnedBio {}

impl OwnedBio {
    /// # Safety
    ///
    /// `bio` is valid, and from here on ours to end.
    pub(super) unsafe fn from_raw(bio: NonNull<b::bio>) -> Self {
        // INVARIANT: by the contract.
        Self(bio)
    }

    pub(super) fn as_ptr(&self) -> *mut b::bio {
        self.0.as_ptr()
    }

    /// Gives the bio away without ending it.
    pub(super) fn into_raw(self) -> NonNull<b::bio> {
        ManuallyDrop::new(self).0
    }

    fn flags(&self) -> b::blk_opf_t {
        // SAFETY: the bio is valid by the type's invariants.
        unsafe { (*self.as_ptr()).bi_opf }
    }

    /// What is asked for.
    pub fn operation(&self) -> Operation {
        match self.flags() & b::REQ_OP_MASK {
            b::req_op_REQ_OP_READ => Operation::Read,
            b::req_op_REQ_OP_WRITE => Operation::Write,
            b::req_op_REQ_OP_DISCARD => Operation::Discard,
            b::req_op_REQ_OP_WRITE_ZEROES => Operation::WriteZeroes,
            // The mask leaves eight bits.
            other => Operation::Other(other as u8),
        }
    }

    /// Whether what is written has to be durable before the bio ends.
    pub fn fua(&self) -> bool {
        self.flags() & b::REQ_FUA != 0
    }

    /// Whether what was acknowledged before has to be durable before this bio is carried out.
    pub fn preflush(&self) -> bool {
        self.flags() & b::REQ_PREFLUSH != 0
    }

    /// The first sector, counted from the start of the device that received the bio.
    pub fn sector(&self) -> u64 {
        // SAFETY: the bio is valid by the type's invariants. Packed field, copied out.
        unsafe { (*self.as_ptr()).bi_iter.bi_sector }
    }

    /// The length in bytes, also of a discard, which has no data.
    pub fn bytes(&self) -> usize {
        // SAFETY: as in `sector`.
        let bytes = unsafe { (*self.as_ptr()).bi_iter.bi_size };
        bytes as usize
    }

    /// Copies the bio's data from `offset` on to `dst`; returns how many bytes there were.
    pub fn copy_out(&self, offset: usize, dst: &mut [u8]) -> usize {
        let (Ok(offset), Ok(len)) = (u32::try_from(offset), u32::try_from(dst.len())) else {
            return 0;
        };
        // SAFETY: the bio is valid, and `dst` has room for `len` bytes.
        let done =
            unsafe { b::rvdo_bio_copy_out(self.as_ptr(), offset, dst.as_mut_ptr().cast(), len) };
        done as usize
    }

    /// Copies `src` to the bio's data from `offset` on; returns how many bytes had room.
    pub fn copy_in(&mut self, offset: usize, src: &[u8]) -> usize {
        let (Ok(offset), Ok(len)) = (u32::try_from(offset), u32::try_from(src.len())) else {
            return 0;
        };
        // SAFETY: the bio is valid, its pages are for us to write as it has not ended, and `src`
        // holds `len` bytes.
        let done = unsafe { b::rvdo_bio_copy_in(self.as_ptr(), offset, src.as_ptr().cast(), len) };
        done as usize
    }

    /// Fills the bio's data with zeroes.
    pub fn zero(&mut self) {
        // SAFETY: the bio is valid, and its pages are for us to write as it has not ended.
        unsafe { b::rvdo_bio_zero(self.as_ptr()) };
    }

    /// Ends the bio.
    pub fn complete(self, status: BlockStatus) {
        let bio = self.into_raw().as_ptr();
        // SAFETY: the bio was valid by the type's invariants and is given up here.
        unsafe {
            (*bio).bi_status = status.0;
            b::bio_endio(bio);
        }
    }

    /// The next bio of a chain, see [`BioQueue`](super::bio_queue::BioQueue).
    pub(super) fn link(&mut self) -> &mut *mut b::bio {
        // SAFETY: the bio is valid, and `bi_next` is for its present owner to use.
        unsafe { &mut (*self.as_ptr()).bi_next }
    }
}

impl Drop for OwnedBio {
    fn drop(&mut self) {
        // SAFETY: `self` is not used again, so the pointer has one owner.
        unsafe { Self::from_raw(self.0) }.complete(BlockStatus::IO_ERROR);
    }
}

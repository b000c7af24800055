// SPDX-License-Identifier: GPL-2.0

//! A block device to read from and write to, page by page.
//!
//! Every operation is a future that takes a [`Page`] and returns it with the device's answer, so
//! memory is never freed or touched while the device may use it. Operations start when their future
//! is first polled, in the order in which that happens, and end in any order. How many may be in
//! flight is fixed when the handle is made; nothing is allocated after.
//!
//! No lock is held across anything that can be awaited. Futures are to be polled where the caller
//! may sleep, since the device below may make a submitter wait.
//!
//! # Examples
//!
//! ```ignore
//! let device = BlockDevice::new(ti.device(id)?, 256)?;
//! let (page, status) = device.read(0, Page::new()?, IoFlags::META).await;
//! status.into_result()?;
//! let (page, status) = device.write(8, page, IoFlags::PREFLUSH | IoFlags::FUA).await;
//! ```

use core::future::Future;
use core::ops::BitOr;
use core::ptr::NonNull;

use kernel::prelude::*;

use crate::bindings as b;
use crate::kapi::bio::BlockStatus;
use crate::kapi::bio_stage::BioStage;
use crate::kapi::device_mapper::DmDevice;
use crate::kapi::noio::noio;
use crate::kapi::page_io::{Command, Pool};
use crate::rt::Page;

/// Flushes that can be in flight at a time.
const FLUSHES: usize = 64;

/// How an operation is to be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoFlags(b::blk_opf_t);

impl IoFlags {
    /// Nothing special.
    pub const NONE: Self = Self(0);
    /// Somebody waits for it.
    pub const SYNC: Self = Self(b::REQ_SYNC);
    /// Metadata.
    pub const META: Self = Self(b::REQ_META);
    /// To be done before other operations.
    pub const PRIO: Self = Self(b::REQ_PRIO);
    /// The device makes everything durable that it acknowledged before it starts this write.
    pub const PREFLUSH: Self = Self(b::REQ_PREFLUSH);
    /// The data is durable when this write is acknowledged.
    pub const FUA: Self = Self(b::REQ_FUA);
}

impl BitOr for IoFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The kernel's name of a device, such as `dm-3`.
pub struct DeviceName {
    bytes: [u8; 32],
    len: usize,
}

impl DeviceName {
    /// # Safety
    ///
    /// `device` is valid.
    unsafe fn of(device: NonNull<b::block_device>) -> Self {
        let mut bytes = [0; 32];
        // SAFETY: the device is valid, and the buffer holds 32 bytes.
        let len = unsafe { b::rvdo_bdev_name(device.as_ptr(), bytes.as_mut_ptr().cast(), 32) };
        Self {
            bytes,
            len: len as usize,
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        self.bytes
            .get(..self.len)
            .and_then(|bytes| core::str::from_utf8(bytes).ok())
            .unwrap_or("?")
    }
}

/// Keeps a device open.
///
/// # Invariants
///
/// Holds a reference to the open file.
struct OpenFile(NonNull<b::file>);

impl Drop for OpenFile {
    fn drop(&mut self) {
        // SAFETY: the reference is ours by the type's invariants.
        unsafe { b::fput(self.0.as_ptr()) };
    }
}

/// An open block device with bios of its own.
///
/// Dropping it waits for the operations that are still in flight.
///
/// # Invariants
///
/// `device` is what `file` has open.
pub struct BlockDevice {
    device: NonNull<b::block_device>,
    pages: Pool<Page>,
    flushes: Pool<()>,
    stage: BioStage,
    // After the pools, so that the device is open while they are in use.
    _file: OpenFile,
}

// SAFETY: a block device may be used from any thread, and an open file be closed by any.
unsafe impl Send for BlockDevice {}
// SAFETY: as above.
unsafe impl Sync for BlockDevice {}

impl BlockDevice {
    /// Prepares `in_flight` operations on a target's device. The device stays open for as long as
    /// this handle lives.
    pub fn new(device: &DmDevice, in_flight: usize) -> Result<Self> {
        let (bdev, file) = device.open_file();
        // SAFETY: the target has the device open, so the file has a reference that we can add to.
        let file = NonNull::new(unsafe { b::rvdo_get_file(file.as_ptr()) }).ok_or(ENODEV)?;
        // INVARIANT: the reference was just taken.
        let file = OpenFile(file);
        // The mapped device may be suspended, when waiting for I/O could be waiting for itself.
        // SAFETY: `_file` is dropped after the pool.
        let pages = noio(|| unsafe { Pool::new(bdev, in_flight) })?;
        // SAFETY: as above.
        let flushes = noio(|| unsafe { Pool::new(bdev, FLUSHES) })?;
        Ok(Self {
            device: bdev,
            pages,
            flushes,
            stage: noio(BioStage::new)?,
            // INVARIANT: both come from the same `dm_dev`.
            _file: file,
        })
    }

    /// The size in 512-byte sectors. A device may grow while it is open.
    pub fn sectors(&self) -> u64 {
        // SAFETY: the device is open.
        unsafe { b::rvdo_bdev_sectors(self.device.as_ptr()) }
    }

    /// The smallest unit the device can write.
    pub fn logical_block_bytes(&self) -> u32 {
        // SAFETY: the device is open.
        unsafe { b::rvdo_bdev_logical_block_size(self.device.as_ptr()) }
    }

    /// The device number. No two open devices have the same.
    pub fn number(&self) -> u32 {
        // SAFETY: the device is open.
        unsafe { b::rvdo_bdev_number(self.device.as_ptr()) }
    }

    /// The kernel's name of the device.
    pub fn name(&self) -> DeviceName {
        // SAFETY: the device is open.
        unsafe { DeviceName::of(self.device) }
    }

    /// Reads into `page` from `sector` on. What the page holds after an error is undefined.
    pub fn read(
        &self,
        sector: u64,
        page: Page,
        flags: IoFlags,
    ) -> impl Future<Output = (Page, BlockStatus)> + Send + '_ {
        self.transfer(b::req_op_REQ_OP_READ | flags.0, sector, page, None)
    }

    /// Writes `page` from `sector` on.
    pub fn write(
        &self,
        sector: u64,
        page: Page,
        flags: IoFlags,
    ) -> impl Future<Output = (Page, BlockStatus)> + Send + '_ {
        self.transfer(b::req_op_REQ_OP_WRITE | flags.0, sector, page, None)
    }

    /// Reads into `page` from `sector` on, together with others. [`BlockDevice::send_grouped`] has to run.
    pub fn read_grouped(
        &self,
        sector: u64,
        page: Page,
    ) -> impl Future<Output = (Page, BlockStatus)> + Send + '_ {
        self.transfer(b::req_op_REQ_OP_READ, sector, page, Some(&self.stage))
    }

    /// Writes `page` from `sector` on, together with others. [`BlockDevice::send_grouped`] has to run.
    pub fn write_grouped(
        &self,
        sector: u64,
        page: Page,
    ) -> impl Future<Output = (Page, BlockStatus)> + Send + '_ {
        self.transfer(b::req_op_REQ_OP_WRITE, sector, page, Some(&self.stage))
    }

    fn transfer<'a>(
        &'a self,
        operation: b::blk_opf_t,
        sector: u64,
        page: Page,
        stage: Option<&'a BioStage>,
    ) -> impl Future<Output = (Page, BlockStatus)> + Send + 'a {
        let command = Command {
            operation,
            sector,
            stage,
        };
        self.pages.transfer(command, page)
    }

    /// Sends what is collected until [`BlockDevice::close`]. The body of a task that has to run from the first grouped
    /// operation on.
    pub fn send_grouped(&self) -> impl Future<Output = ()> + Send + '_ {
        self.stage.run()
    }

    /// Collects again after a close. [`BlockDevice::send_grouped`] has to run.
    pub fn reopen(&self) {
        self.stage.reopen();
    }

    /// Ends [`BlockDevice::send_grouped`]. Later operations are sent one by one.
    pub fn close(&self) {
        self.stage.close();
    }

    /// Makes everything durable that the device has acknowledged.
    pub async fn flush(&self) -> BlockStatus {
        let command = Command {
            operation: b::req_op_REQ_OP_WRITE | b::REQ_PREFLUSH | b::REQ_SYNC,
            sector: 0,
            stage: None,
        };
        let ((), status) = self.flushes.transfer(command, ()).await;
        status
    }
}

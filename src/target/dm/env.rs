// SPDX-License-Identifier: GPL-2.0

//! The engine's outside world in the kernel.

use core::future::Future;

use kernel::sync::Arc;

use super::codecs::Codecs;
use super::request::{BioIntake, BioRequest};
use crate::engine::env::{Device, Env, IoClass, IoError, WriteFlags};
use crate::engine::units::{DeviceBlock, SECTORS_PER_BLOCK};
use crate::kapi::bio::BlockStatus;
use crate::kapi::block_device::{BlockDevice, IoFlags};
use crate::kapi::executor::Executor;
use crate::rt::{AllocError, Page};

/// What one volume runs on.
pub(super) struct KernelEnv {
    pub(super) device: Disk,
    pub(super) codecs: Codecs,
    pub(super) intake: BioIntake,
    /// Outlives the tasks: whoever stops the volume drains it before the last reference goes.
    pub(super) executor: Arc<Executor>,
}

impl Env for KernelEnv {
    type Device = Disk;
    type Codec = Codecs;
    type Request = BioRequest;
    type Intake = BioIntake;

    fn device(&self) -> &Disk {
        &self.device
    }

    fn codec(&self) -> &Codecs {
        &self.codecs
    }

    fn intake(&self) -> &BioIntake {
        &self.intake
    }

    fn spawn(
        &self,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> core::result::Result<(), AllocError> {
        self.executor.spawn(task)
    }
}

/// The block device below.
pub(super) struct Disk(pub(super) BlockDevice);

/// `SECTORS_PER_BLOCK` for block numbers.
const BLOCK_SECTORS: u64 = SECTORS_PER_BLOCK as u64;

impl Device for Disk {
    fn blocks(&self) -> u64 {
        self.0.sectors() / BLOCK_SECTORS
    }

    async fn read(
        &self,
        block: DeviceBlock,
        page: Page,
        class: IoClass,
    ) -> (Page, core::result::Result<(), IoError>) {
        let Some(sector) = block.get().checked_mul(BLOCK_SECTORS) else {
            return (page, Err(IoError::Io));
        };
        let (page, status) = match class {
            IoClass::Data => self.0.read_grouped(sector, page).await,
            _ => self.0.read(sector, page, urgency(class)).await,
        };
        (page, result(status))
    }

    async fn write(
        &self,
        block: DeviceBlock,
        page: Page,
        class: IoClass,
        flags: WriteFlags,
    ) -> (Page, core::result::Result<(), IoError>) {
        let Some(sector) = block.get().checked_mul(BLOCK_SECTORS) else {
            return (page, Err(IoError::Io));
        };
        let mut io_flags = urgency(class);
        if flags.preflush {
            io_flags = io_flags | IoFlags::PREFLUSH;
        }
        if flags.fua {
            io_flags = io_flags | IoFlags::FUA;
        }
        let (page, status) = match io_flags {
            IoFlags::NONE => self.0.write_grouped(sector, page).await,
            _ => self.0.write(sector, page, io_flags).await,
        };
        (page, result(status))
    }

    async fn flush(&self) -> core::result::Result<(), IoError> {
        result(self.0.flush().await)
    }
}

/// Writers wait for the journal; nobody waits for data that has been acknowledged.
fn urgency(class: IoClass) -> IoFlags {
    match class {
        IoClass::Data => IoFlags::NONE,
        IoClass::Journal => IoFlags::SYNC | IoFlags::META | IoFlags::PRIO,
        IoClass::Metadata | IoClass::BlockMap | IoClass::Index => IoFlags::META | IoFlags::PRIO,
    }
}

fn result(status: BlockStatus) -> core::result::Result<(), IoError> {
    status.into_result().map_err(|status| match status {
        BlockStatus::NO_SPACE => IoError::NoSpace,
        BlockStatus::TIMEOUT => IoError::Timeout,
        BlockStatus::OFFLINE => IoError::Removed,
        _ => IoError::Io,
    })
}

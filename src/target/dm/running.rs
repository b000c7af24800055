// SPDX-License-Identifier: GPL-2.0

//! A volume with its tasks, as long as any table refers to it.

use kernel::prelude::*;
use kernel::str::CString;
use kernel::sync::{new_mutex, Arc, Mutex};

use super::codec::AcompCodec;
use super::env::{Disk, KernelEnv};
use super::request::BioIntake;
use crate::engine::error::Error as EngineError;
use crate::engine::volume::{OpenParameters, SuspendKind, Volume};
use crate::kapi::block_device::{BlockDevice, DeviceName};
use crate::kapi::block_on::{block_on, Parker};
use crate::kapi::device_mapper::DmDevice;
use crate::kapi::executor::Executor;
use crate::rt;
use crate::target::compression_type::{check_volume, CompressionType};
use crate::target::table_line::TableLine;

/// Requests worked on at a time, as in the in-tree driver.
const REQUESTS: usize = 2048;

/// Names that the volatile index holds: 32 bytes each.
const INDEX_ENTRIES: usize = 1 << 21;

/// Bios of our own that may be in flight.
const BIOS: usize = 4096;

/// What only one thread does at a time.
struct Control {
    parker: Parker,
    /// The table that the volume runs with.
    line: Arc<TableLine>,
    started: bool,
    suspend_kind: SuspendKind,
}

/// A running volume.
#[pin_data]
pub(super) struct Running {
    /// Distinguishes volumes in logs and statistics.
    instance: u32,
    volume: rt::Arc<Volume<KernelEnv>>,
    env: rt::Arc<KernelEnv>,
    executor: Arc<Executor>,
    #[pin]
    control: Mutex<Control>,
}

/// Why a volume cannot be opened.
pub(super) enum OpenError {
    /// The table line asks for what is not there.
    Table(&'static str, Error),
    /// The volume does not open.
    Volume(EngineError),
    /// The kernel refuses something.
    Kernel(Error),
}

impl From<Error> for OpenError {
    fn from(error: Error) -> Self {
        Self::Kernel(error)
    }
}

impl From<rt::AllocError> for OpenError {
    fn from(error: rt::AllocError) -> Self {
        Self::Kernel(error.into())
    }
}

impl From<EngineError> for OpenError {
    fn from(error: EngineError) -> Self {
        Self::Volume(error)
    }
}

impl Running {
    /// Opens the volume on `device` as `line` says. Nothing is written.
    pub(super) fn open(
        instance: u32,
        device: &DmDevice,
        line: &Arc<TableLine>,
    ) -> core::result::Result<Arc<Self>, OpenError> {
        let wanted = line.options.compression_type.unwrap_or_default();
        let codec = open_codec(&wanted)?;
        let name = CString::try_from_fmt(fmt!("rvdo{}", instance))?;
        let executor = Arc::new(Executor::new(&name)?, GFP_KERNEL).map_err(Error::from)?;
        let env = rt::Arc::new(KernelEnv {
            device: Disk(BlockDevice::new(device, BIOS)?),
            codec,
            intake: BioIntake::new(line.range.start_sectors)?,
            executor: executor.clone(),
        })?;
        let parameters = OpenParameters {
            physical_blocks: line.physical_blocks,
            logical_blocks: line.logical_blocks,
            cache_pages: usize::try_from(line.cache_size_pages).map_err(|_| EINVAL)?,
            maximum_age_blocks: line.block_map_age.journal_blocks(),
            requests: REQUESTS,
            index_entries: INDEX_ENTRIES,
            compression: line.options.compression,
            deduplication: line.options.deduplication,
        };
        let mut parker = Parker::new()?;
        let volume = parker.block_on(Volume::open(env.clone(), parameters))?;
        let init = pin_init!(Self {
            instance,
            volume,
            env,
            executor,
            control <- new_mutex!(Control {
                parker,
                line: line.clone(),
                started: false,
                suspend_kind: SuspendKind::Save,
            }),
        });
        Ok(Arc::pin_init(init, GFP_KERNEL)?)
    }

    pub(super) fn instance(&self) -> u32 {
        self.instance
    }

    pub(super) fn volume(&self) -> &Volume<KernelEnv> {
        &self.volume
    }

    pub(super) fn intake(&self) -> &BioIntake {
        &self.env.intake
    }

    pub(super) fn codec(&self) -> &AcompCodec {
        &self.env.codec
    }

    pub(super) fn device_name(&self) -> DeviceName {
        self.env.device.0.name()
    }

    pub(super) fn device_number(&self) -> u32 {
        self.env.device.0.number()
    }

    /// Whether the volume has been resumed at least once.
    pub(super) fn is_started(&self) -> bool {
        self.control.lock().started
    }

    /// The table that the volume runs with.
    pub(super) fn line(&self) -> Arc<TableLine> {
        self.control.lock().line.clone()
    }

    /// Starts the volume or goes on with it, as `line` says.
    pub(super) fn resume(&self, line: &Arc<TableLine>) -> core::result::Result<(), EngineError> {
        let mut control = self.control.lock();
        self.volume.grow_logical(line.logical_blocks);
        control.parker.block_on(Volume::resume(&self.volume))?;
        control.started = true;
        control.line = line.clone();
        self.volume.set_compression(line.options.compression);
        self.volume.set_deduplication(line.options.deduplication);
        Ok(())
    }

    /// Remembers how far the suspend that begins now is to go.
    pub(super) fn prepare_suspend(&self, kind: SuspendKind) {
        self.control.lock().suspend_kind = kind;
    }

    /// Finishes what has been acknowledged, and saves the volume unless that was not asked for.
    pub(super) fn suspend(&self) {
        let mut control = self.control.lock();
        let kind = control.suspend_kind;
        if let Err(error) = control.parker.block_on(self.volume.suspend(kind)) {
            rt::error!(
                "{}: the volume could not be saved: {}",
                self.instance,
                error
            );
        }
    }

    /// Ends the volume's tasks. Nothing is written: device-mapper has suspended it before.
    pub(super) fn stop(&self) {
        self.volume.stop();
        self.executor.drain();
    }
}

/// The codec for what the table line asks for, on a volume of the original format.
fn open_codec(wanted: &CompressionType) -> core::result::Result<AcompCodec, OpenError> {
    if wanted.option().is_some() {
        return Err(OpenError::Table(
            "compressionType takes no option here: the kernel's compression drivers have none to set",
            EINVAL,
        ));
    }
    let codec = AcompCodec::new(wanted.algorithm()).map_err(|error| {
        OpenError::Table(
            "compressionType names no compression driver that this kernel has",
            error,
        )
    })?;
    let algorithm = crate::engine::env::Codec::algorithm(&codec);
    let format = wanted.stored_as(Some(algorithm)).map_err(|_| {
        OpenError::Table(
            "compressionType must name an lz4, deflate or zstd driver",
            EINVAL,
        )
    })?;
    if check_volume(wanted, format, false).is_err() {
        return Err(OpenError::Table(
            "compressionType needs the per-block algorithm field; this volume has the original format, \
             whose blocks can only be lz4. The volume stays as it is.",
            EINVAL,
        ));
    }
    Ok(codec)
}

/// What the `selftest` message does: sends a block there and back through a driver of that name.
pub(super) fn self_test(name: &str, out: &mut dyn core::fmt::Write) -> Result {
    let codec = AcompCodec::new(name)?;
    let mut page = rt::Page::new()?;
    for (index, (byte, letter)) in page
        .iter_mut()
        .zip(b"rvdo self-test ".iter().cycle())
        .enumerate()
    {
        // Half text, half a slow counter: every driver makes it smaller, none makes it nothing.
        *byte = if index & 64 == 0 {
            *letter
        } else {
            (index >> 3) as u8
        };
    }
    block_on(super::codec::round_trip(&codec, page, out)).map_err(|_| ENOMEM)?
}

// SPDX-License-Identifier: GPL-2.0

//! A volume with its tasks, as long as any table refers to it.

use kernel::prelude::*;
use kernel::str::CString;
use kernel::sync::{new_mutex, Arc, Mutex};

use super::codecs::{Codecs, Refusal, Selection, Wish};
use super::env::{Disk, KernelEnv};
use super::request::BioIntake;
use crate::engine::env::Device;
use crate::engine::error::Error as EngineError;
use crate::engine::format::StreamFormat;
use crate::engine::volume::{DowngradeError, OpenParameters, SuspendKind, Volume};
use crate::kapi::block_device::{BlockDevice, DeviceName};
use crate::kapi::block_on::Parker;
use crate::kapi::device_mapper::DmDevice;
use crate::kapi::executor::Executor;
use crate::kapi::random::random_bytes;
use crate::rt;
use crate::target::compression_type::{check_volume, CompressionType};
use crate::target::new_volume::new_volume;
use crate::target::table_line::TableLine;

/// Requests worked on at a time, as in the in-tree driver.
const REQUESTS: usize = 2048;

/// Names that the volatile index holds: 32 bytes each.
const INDEX_ENTRIES: usize = 1 << 21;

/// Bios of our own that may be in flight.
const BIOS: usize = 4096;

/// What only one thread does at a time, for minutes if need be.
struct Control {
    parker: Parker,
    suspend_kind: SuspendKind,
}

/// What others want to know meanwhile. Changed by who has the [`Control`].
struct Situation {
    /// The table that the volume runs with.
    line: Arc<TableLine>,
    /// Has been resumed at least once.
    started: bool,
    /// Runs now: what is suspended is not written to.
    active: bool,
}

/// A running volume.
#[pin_data]
pub(super) struct Running {
    /// Distinguishes volumes in logs and statistics.
    instance: u32,
    /// Number of the device that the volume is on.
    device_number: u32,
    /// Another one after the volume has grown. Guarded by a leaf lock, which is held to copy the reference.
    volume: rt::SpinLock<rt::Arc<Volume<KernelEnv>>>,
    env: rt::Arc<KernelEnv>,
    executor: Arc<Executor>,
    /// Guarded by a leaf lock.
    situation: rt::SpinLock<Situation>,
    #[pin]
    control: Mutex<Control>,
}

/// What a table asks for once: at the first resume with it.
pub(super) struct Request {
    /// Compression drivers.
    pub(super) selection: Option<Selection>,
    /// The volume is to be upgraded.
    pub(super) upgrade: bool,
}

/// Why a volume cannot be opened.
pub(super) enum OpenError {
    /// There is no driver for what the table line asks for, or for what the volume holds.
    Driver(Refusal),
    /// The volume is of the original format, and what the table line asks for needs the other.
    NeedsUpgrade(CompressionType),
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

impl From<Refusal> for OpenError {
    fn from(refusal: Refusal) -> Self {
        Self::Driver(refusal)
    }
}

impl From<EngineError> for OpenError {
    fn from(error: EngineError) -> Self {
        Self::Volume(error)
    }
}

impl Running {
    /// Opens the volume on `device` as `line` says. Nothing is written, unless the device is empty: it becomes a volume.
    pub(super) fn open(
        instance: u32,
        device: &DmDevice,
        line: &Arc<TableLine>,
    ) -> core::result::Result<Arc<Self>, OpenError> {
        let codecs = Codecs::new()?;
        codecs.open_software(StreamFormat::Lz4)?;
        codecs.install(codecs.select(&Wish::of(&line.options))?);
        let name = CString::try_from_fmt(fmt!("rvdo{}", instance))?;
        let executor = Arc::new(Executor::new(&name)?, GFP_KERNEL).map_err(Error::from)?;
        let env = rt::Arc::new(KernelEnv {
            device: Disk(BlockDevice::new(device, BIOS)?),
            codecs,
            intake: BioIntake::new(line.range.start_sectors)?,
            executor: executor.clone(),
        })?;
        let parameters = parameters_of(line);
        let mut parker = Parker::new()?;
        let blank = || new_volume(line, env.device.blocks(), &random_bytes());
        if parker.block_on(Volume::format_if_empty(env.clone(), blank))? {
            rt::info!("{}: the device was empty and is formatted", instance);
        }
        let volume = parker.block_on(Volume::open(env.clone(), parameters))?;
        open_held_formats(&env.codecs, &volume)?;
        check_wish(&volume, line, &env.codecs)?;
        let volume = rt::spin_lock!(volume)?;
        let situation = rt::spin_lock!(Situation {
            line: line.clone(),
            started: false,
            active: false,
        })?;
        let init = pin_init!(Self {
            instance,
            device_number: device.number(),
            volume,
            env,
            executor,
            situation,
            control <- new_mutex!(Control {
                parker,
                suspend_kind: SuspendKind::Save,
            }),
        });
        let running = Arc::pin_init(init, GFP_KERNEL)?;
        // The last thing that can fail: from here on `stop` is called.
        running.start_sender()?;
        Ok(running)
    }

    /// Starts the task that sends what is collected.
    fn start_sender(&self) -> core::result::Result<(), rt::AllocError> {
        let env = self.env.clone();
        self.executor
            .spawn(async move { env.device.0.send_grouped().await })
    }

    pub(super) fn instance(&self) -> u32 {
        self.instance
    }

    /// The number of the device that the volume is on.
    pub(super) fn device_number(&self) -> u32 {
        self.device_number
    }

    /// The volume as it is now.
    pub(super) fn volume(&self) -> rt::Arc<Volume<KernelEnv>> {
        self.volume.lock().clone()
    }

    pub(super) fn intake(&self) -> &BioIntake {
        &self.env.intake
    }

    pub(super) fn codecs(&self) -> &Codecs {
        &self.env.codecs
    }

    pub(super) fn device_name(&self) -> DeviceName {
        self.env.device.0.name()
    }

    /// Whether the volume has been resumed at least once.
    pub(super) fn is_started(&self) -> bool {
        self.situation.lock().started
    }

    /// Whether the volume has been resumed, and not suspended since.
    pub(super) fn is_active(&self) -> bool {
        self.situation.lock().active
    }

    /// The table that the volume runs with.
    pub(super) fn line(&self) -> Arc<TableLine> {
        self.situation.lock().line.clone()
    }

    /// Starts the volume or goes on with it, as `line` says; does what is left of `request`.
    pub(super) fn resume(
        &self,
        line: &Arc<TableLine>,
        request: &mut Request,
    ) -> core::result::Result<(), EngineError> {
        let mut control = self.control.lock();
        self.grow_physical(&mut control, line)?;
        let volume = self.volume();
        volume.grow_logical(line.logical_blocks);
        control.parker.block_on(Volume::resume(&volume))?;
        // The old line outlives the lock.
        let _old = {
            let mut situation = self.situation.lock();
            situation.started = true;
            core::mem::replace(&mut situation.line, line.clone())
        };
        if !volume.store().read_only().is_set() {
            match self.prepare_formats(&mut control, &volume, request) {
                // The volume was downgraded after the table was loaded, or something is wrong with it: it goes on all the same.
                Err(error @ (EngineError::Unsupported(_) | EngineError::ReadOnly)) => {
                    rt::error!(
                        "{}: the compressor stays as it is: {}",
                        self.instance,
                        error
                    );
                    request.selection = None;
                }
                prepared => prepared?,
            }
        }
        request.upgrade = false;
        if let Some(selection) = request.selection.take() {
            self.env.codecs.install(selection);
            volume.compressor_changed();
        }
        volume.set_compression_verify(line.options.compression_verify);
        volume.set_compression(line.options.compression);
        volume.set_deduplication(line.options.deduplication);
        self.situation.lock().active = true;
        Ok(())
    }

    /// Gives the suspended volume the physical size of `line` if that is larger, and puts the volume that it becomes in its place.
    ///
    /// Once the larger one is on the disk there is no way back: when its memory cannot be had now, the next resume tries again.
    fn grow_physical(
        &self,
        control: &mut Control,
        line: &TableLine,
    ) -> core::result::Result<(), EngineError> {
        let old = self.volume();
        let now = old.super_block().config.physical_blocks;
        let wanted = line.physical_blocks.filter(|wanted| *wanted > now);
        if let (Some(_), true) = (wanted, old.store().read_only().is_set()) {
            // It was not when the table was loaded. What can be read is to be read.
            rt::error!("{}: a read-only volume does not grow", self.instance);
        } else if let Some(wanted) = wanted {
            control.parker.block_on(old.grow_physical(wanted))?;
            rt::info!(
                "{}: physical block count was {}, now {}",
                self.instance,
                now,
                wanted
            );
        }
        if !old.is_outgrown() {
            return Ok(());
        }
        self.stop();
        self.env.intake.reopen();
        self.env.device.0.reopen();
        self.start_sender()?;
        let env = self.env.clone();
        let grown = control
            .parker
            .block_on(Volume::succeed(&old, env, parameters_of(line)))?;
        // `old` still refers to the old volume, so nothing is freed under the lock.
        drop(core::mem::replace(&mut *self.volume.lock(), grown));
        Ok(())
    }

    /// Writes to the super block what the compressor to come needs there.
    fn prepare_formats(
        &self,
        control: &mut Control,
        volume: &Volume<KernelEnv>,
        request: &Request,
    ) -> core::result::Result<(), EngineError> {
        if request.upgrade && control.parker.block_on(volume.upgrade())? {
            rt::info!(
                "{}: the volume was upgraded, as the table asks",
                self.instance
            );
        }
        let format = match &request.selection {
            Some(selection) => Some(selection.format()),
            None => self.env.codecs.current(|in_use| in_use.format),
        };
        match format {
            Some(format) => control.parker.block_on(volume.admit_format(format)),
            None => Ok(()),
        }
    }

    /// Opens the drivers that `line` asks for, while the volume runs. `None`: they are in use already.
    pub(super) fn select(
        &self,
        line: &TableLine,
    ) -> core::result::Result<Option<Selection>, OpenError> {
        let wish = Wish::of(&line.options);
        let selection = self.env.codecs.select(&wish)?;
        let upgraded = self.volume().has_block_formats() || line.options.upgrade;
        if check_volume(&wish.compression_type, selection.format(), upgraded).is_err() {
            return Err(OpenError::NeedsUpgrade(wish.compression_type));
        }
        Ok(Some(selection))
    }

    /// Compresses and decompresses with the drivers that `change` asks for from now on.
    pub(super) fn change_wish(
        &self,
        change: impl FnOnce(&mut Wish),
    ) -> core::result::Result<(), OpenError> {
        let mut control = self.control.lock();
        if !self.is_active() {
            return Err(OpenError::Volume(EngineError::Suspended));
        }
        let volume = self.volume();
        let mut wish = self
            .env
            .codecs
            .current(|in_use| in_use.wish)
            .ok_or(OpenError::Kernel(EINVAL))?;
        change(&mut wish);
        let selection = self.env.codecs.select(&wish)?;
        let format = selection.format();
        if check_volume(&wish.compression_type, format, volume.has_block_formats()).is_err() {
            return Err(OpenError::NeedsUpgrade(wish.compression_type));
        }
        control.parker.block_on(volume.admit_format(format))?;
        self.env.codecs.install(selection);
        volume.compressor_changed();
        Ok(())
    }

    /// Upgrades the volume while it runs.
    pub(super) fn upgrade(&self) -> core::result::Result<(), OpenError> {
        let mut control = self.control.lock();
        if !self.is_active() {
            return Err(OpenError::Volume(EngineError::Suspended));
        }
        let volume = self.volume();
        if control.parker.block_on(volume.upgrade())? {
            rt::info!("{}: the volume was upgraded", self.instance);
        }
        // From here on it may hold all formats that there are drivers for.
        open_held_formats(&self.env.codecs, &volume)
    }

    /// Makes the volume one of the original format while it runs.
    pub(super) fn downgrade(&self) -> core::result::Result<(), DowngradeError> {
        let mut control = self.control.lock();
        if !self.is_active() {
            return Err(DowngradeError::Failed(EngineError::Suspended));
        }
        if self.env.codecs.current(|in_use| in_use.format) != Some(StreamFormat::Lz4) {
            return Err(DowngradeError::Failed(EngineError::Unsupported(
                "the volume cannot be downgraded while it compresses with another algorithm than lz4: \
                 send 'compression-type lz4' first",
            )));
        }
        control.parker.block_on(self.volume().downgrade())?;
        rt::info!("{}: the volume was downgraded", self.instance);
        Ok(())
    }

    /// Has the volume, which is in read-only mode, rebuilt when it is started the next time.
    pub(super) fn request_rebuild(&self) -> core::result::Result<(), OpenError> {
        let mut control = self.control.lock();
        if !self.is_active() {
            return Err(OpenError::Volume(EngineError::Suspended));
        }
        control.parker.block_on(self.volume().request_rebuild())?;
        rt::info!(
            "{}: all metadata will be rebuilt when the volume is started the next time",
            self.instance
        );
        Ok(())
    }

    /// Remembers how far the suspend that begins now is to go.
    pub(super) fn prepare_suspend(&self, kind: SuspendKind) {
        self.control.lock().suspend_kind = kind;
    }

    /// Finishes what has been acknowledged, and saves the volume unless that was not asked for.
    pub(super) fn suspend(&self) {
        let mut control = self.control.lock();
        self.situation.lock().active = false;
        let kind = control.suspend_kind;
        if let Err(error) = control.parker.block_on(self.volume().suspend(kind)) {
            rt::error!(
                "{}: the volume could not be saved: {}",
                self.instance,
                error
            );
        }
    }

    /// Ends the volume's tasks. Nothing is written: device-mapper has suspended it before.
    pub(super) fn stop(&self) {
        self.volume().stop();
        self.env.device.0.close();
        self.executor.drain();
    }
}

/// How a volume is opened with `line`.
fn parameters_of(line: &TableLine) -> OpenParameters {
    OpenParameters {
        physical_blocks: line.physical_blocks,
        logical_blocks: line.logical_blocks,
        cache_pages: usize::try_from(line.cache_size_pages).unwrap_or(usize::MAX),
        maximum_age_blocks: line.block_map_age.journal_blocks(),
        requests: REQUESTS,
        index_entries: INDEX_ENTRIES,
        compression: line.options.compression,
        deduplication: line.options.deduplication,
    }
}

/// Whether the volume can store what `line` asks for.
fn check_wish(
    volume: &Volume<KernelEnv>,
    line: &TableLine,
    codecs: &Codecs,
) -> core::result::Result<(), OpenError> {
    let upgraded = volume.has_block_formats() || line.options.upgrade;
    codecs
        .current(|in_use| {
            let wanted = in_use.wish.compression_type;
            check_volume(&wanted, in_use.format, upgraded).map_err(|_| wanted)
        })
        .unwrap_or(Ok(()))
        .map_err(OpenError::NeedsUpgrade)
}

/// Opens software for every format that the volume may hold. One that it says it holds has to be there; the others are welcome,
/// because blocks of dm-vdo's own making need not be announced.
fn open_held_formats(
    codecs: &Codecs,
    volume: &Volume<KernelEnv>,
) -> core::result::Result<(), OpenError> {
    for format in StreamFormat::ALL {
        if volume.may_hold(format) {
            codecs.open_software(format)?;
        } else if volume.has_block_formats() {
            let _ = codecs.open_software(format);
        }
    }
    Ok(())
}

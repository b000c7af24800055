// SPDX-License-Identifier: GPL-2.0

//! The target: one for each table that is loaded.

use core::fmt::Write;
use core::sync::atomic::{AtomicBool, Ordering};

use kernel::prelude::*;
use kernel::str::CString;
use kernel::sync::Arc;

use super::registry::{AttachError, Registry};
use super::request::BioRequest;
use super::running::{self_test, OpenError, Running};
use crate::engine::env::Codec;
use crate::engine::error::Error as EngineError;
use crate::engine::statistics::OperatingMode;
use crate::engine::units::{BLOCK_SIZE, SECTORS_PER_BLOCK};
use crate::engine::volume::SuspendKind;
use crate::kapi::device_mapper::{
    Args, Callout, Constructor, DeviceId, Features, Incoming, Instance, MappedDevice, Mapping,
    QueueLimits, Reply, ResultText, StatusKind, Target,
};
use crate::rt;
use crate::target::compress_stats::{write_compress_stats, CompressReport};
use crate::target::config::{write_config, ConfigReport};
use crate::target::errno::Errno;
use crate::target::messages::{Message, MessageError};
use crate::target::reload::{check_reload, VolumeCondition};
use crate::target::stats::write_stats;
use crate::target::status::InfoStatus;
use crate::target::table_line::{TableLine, TargetRange};
use crate::target::table_options::IndexMemory;

/// Sectors of a block, for numbers of sectors.
const BLOCK_SECTORS: u64 = SECTORS_PER_BLOCK as u64;
/// Bytes of a block, for limits and sizes.
const BLOCK_BYTES: u32 = BLOCK_SIZE as u32;

/// A table of a volume.
pub(crate) struct VdoTarget {
    line: Arc<TableLine>,
    device: DeviceId,
    attachment: Attachment,
    /// A message that does not run beside others runs.
    busy: AtomicBool,
}

/// A target's share in a running volume. Dropping the last one stops the volume.
struct Attachment {
    registry: Arc<Registry>,
    mapped_device: MappedDevice,
    running: Arc<Running>,
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.registry.detach(self.mapped_device);
    }
}

impl VdoTarget {
    fn running(&self) -> &Running {
        &self.attachment.running
    }

    fn parse(ti: &mut Constructor<'_>) -> Result<Arc<TableLine>> {
        let args = ti.args();
        let mut words = KVec::with_capacity(args.len(), GFP_KERNEL)?;
        for index in 0..args.len() {
            let Some(word) = args.str(index) else {
                return Err(ti.fail(EINVAL, fmt!("the table line is not text")));
            };
            words.push(word, GFP_KERNEL)?;
        }
        let name = ti.instance();
        let range = TargetRange {
            start_sectors: name.begin(),
            length_sectors: name.len(),
        };
        let parsed = TableLine::parse(range, &words, &mut |notice| rt::warn!("{}", notice));
        match parsed {
            Ok(line) => Ok(Arc::new(line, GFP_KERNEL)?),
            Err(error) => {
                rt::error!("{}", error);
                Err(ti.fail(kernel_error(Errno::from(&error)), format_args!("{}", error)))
            }
        }
    }

    fn attach(
        ti: &mut Constructor<'_>,
        registry: &Arc<Registry>,
        line: &Arc<TableLine>,
        device: DeviceId,
    ) -> Result<Attachment> {
        let mapped_device = ti.instance().mapped_device();
        let mut refusal = None;
        let number = ti.device(device)?.number();
        let attached = registry.attach(
            mapped_device,
            number,
            |running| {
                refusal = check(running, line).err();
                refusal.is_none()
            },
            |instance| Running::open(instance, ti.device(device)?, line),
        );
        match attached {
            Ok(running) => Ok(Attachment {
                registry: registry.clone(),
                mapped_device,
                running,
            }),
            Err(AttachError::Shared) => {
                Err(ti.fail(EINVAL, fmt!("cannot share storage device with running VDO")))
            }
            Err(AttachError::Reload) => Err(match refusal {
                Some(text) => ti.fail(EINVAL, format_args!("{}", text)),
                None => EINVAL,
            }),
            Err(AttachError::Open(OpenError::Table(text, error))) => {
                Err(ti.fail(error, format_args!("{}", text)))
            }
            Err(AttachError::Open(OpenError::Kernel(error))) => {
                Err(ti.fail(error, fmt!("cannot allocate what a volume needs")))
            }
            Err(AttachError::Open(OpenError::Volume(error))) => {
                rt::error!("cannot load the volume: {}", error);
                Err(ti.fail(kernel_error(Errno::from(error)), format_args!("{}", error)))
            }
        }
    }

    fn info(&self, out: &mut dyn Write) -> core::fmt::Result {
        let running = self.running();
        let volume = running.volume();
        let mode = volume.operating_mode();
        let device = running.device_name();
        let status = InfoStatus {
            backing_device: device.as_str(),
            mode,
            recovering: mode == OperatingMode::Recovering,
            index: volume.index_state(),
            compression: volume.compresses(),
            used_blocks: volume.used_blocks(),
            total_blocks: volume.super_block().config.physical_blocks,
        };
        write!(out, "{status}")
    }

    fn stats(&self, out: &mut dyn Write) -> core::fmt::Result {
        let mut snapshot = self.running().volume().snapshot();
        snapshot.instance = self.running().instance();
        snapshot.logical_block_size_bytes = self.line.logical_block_size.bytes();
        write_stats(out, &snapshot)
    }

    fn config(&self, out: &mut dyn Write) -> core::fmt::Result {
        let volume = self.running().volume();
        let config = volume.super_block().config;
        let bytes = |blocks: u64| blocks.saturating_mul(u64::from(BLOCK_BYTES));
        let index = volume.geometry().index;
        write_config(
            out,
            &ConfigReport {
                physical_size_bytes: bytes(config.physical_blocks),
                logical_size_bytes: bytes(volume.logical_blocks()),
                slab_size_blocks: config.slab_size,
                index_memory: IndexMemory::from_encoded(index.memory_code() as u32),
                index_sparse: index.sparse,
            },
        )
    }

    fn compress_stats(&self, out: &mut dyn Write) -> core::fmt::Result {
        let running = self.running();
        let codec = running.codec();
        write_compress_stats(
            out,
            &CompressReport {
                requested: self
                    .line
                    .options
                    .compression_type
                    .unwrap_or_default()
                    .algorithm(),
                algorithm: codec.algorithm(),
                driver: codec.driver(),
                asynchronous: codec.is_async(),
                enabled: running.volume().compresses(),
                codec: running.volume().statistics().codec.snapshot(),
            },
        )
    }

    fn carry_out(&self, message: Message<'_>, out: &mut ResultText<'_>) -> Result<Reply> {
        let volume = self.running().volume();
        // A text that does not fit is cut: device-mapper asks again with a larger buffer.
        match message {
            Message::Stats => self
                .stats(out)
                .map_or(Ok(Reply::Text), |()| Ok(Reply::Text)),
            Message::Config => self
                .config(out)
                .map_or(Ok(Reply::Text), |()| Ok(Reply::Text)),
            Message::CompressStats => self
                .compress_stats(out)
                .map_or(Ok(Reply::Text), |()| Ok(Reply::Text)),
            Message::SelfTest(name) => {
                self_test(name.unwrap_or(self.running().codec().driver()), out)?;
                Ok(Reply::Text)
            }
            Message::Compression(on) => {
                volume.set_compression(on);
                Ok(Reply::Done)
            }
            Message::IndexEnable | Message::IndexCreate => {
                volume.set_deduplication(true);
                Ok(Reply::Done)
            }
            Message::IndexDisable | Message::IndexClose => {
                volume.set_deduplication(false);
                Ok(Reply::Done)
            }
            Message::Dump(_) | Message::DumpOnShutdown => {
                rt::info!("{}: {:?}", self.running().instance(), volume.snapshot());
                Ok(Reply::Done)
            }
        }
    }
}

/// Whether a running volume can go on with `line`; the text says why not.
fn check(running: &Running, line: &TableLine) -> core::result::Result<(), &'static str> {
    let condition = VolumeCondition {
        started: running.is_started(),
        recovering: running.volume().operating_mode() == OperatingMode::Recovering,
        read_only: running.volume().operating_mode() == OperatingMode::ReadOnly,
    };
    let changes = check_reload(&running.line(), line, condition).map_err(|error| {
        rt::error!("{}: {}", running.instance(), error);
        error
            .summary()
            .to_str()
            .unwrap_or("the table does not suit the running volume")
    })?;
    if changes.physical.is_some() {
        return Err("growing the physical size is not supported yet; the volume goes on as it is");
    }
    if changes.compression_type {
        return Err("compressionType cannot be changed while the volume runs yet");
    }
    Ok(())
}

/// The engine's errno as the kernel's.
fn kernel_error(errno: Errno) -> Error {
    Error::from_errno(errno.number().wrapping_neg())
}

fn engine_error(error: EngineError) -> Error {
    kernel_error(Errno::from(error))
}

#[vtable]
impl Target for VdoTarget {
    /// User space chooses its table lines by this: it is that of the in-tree driver.
    const VERSION: [u32; 3] = [9, 2, 0];
    const FEATURES: Features = Features::SINGLETON;

    type Shared = Registry;

    fn new(ti: &mut Constructor<'_>, registry: &Arc<Registry>) -> Result<Self> {
        let line = Self::parse(ti)?;
        let path = CString::try_from_fmt(fmt!("{}", line.device()))?;
        let device = ti.open_device(&path).map_err(|error| {
            ti.fail(
                error,
                fmt!("unable to open storage device {}", line.device()),
            )
        })?;
        let attachment = Self::attach(ti, registry, &line, device)?;
        ti.set_max_io_sectors(BLOCK_SECTORS)?;
        ti.set_flush_bios(1);
        ti.set_discard_bios(1);
        ti.support_flush();
        ti.support_discards();
        Ok(Self {
            line,
            device,
            attachment,
            busy: AtomicBool::new(false),
        })
    }

    fn map<'a>(&self, _ti: &Instance<'_>, bio: Incoming<'a>) -> Mapping<'a> {
        if BioRequest::operation_of(&bio).is_none() {
            return bio.kill();
        }
        let (bio, mapping) = bio.take();
        self.running().intake().push(bio);
        mapping
    }

    fn status(
        &self,
        _ti: &Instance<'_>,
        kind: StatusKind,
        _noflush: bool,
        out: &mut ResultText<'_>,
    ) {
        // Device-mapper notices a full buffer and asks again with a larger one.
        let _ = match kind {
            StatusKind::Info => self.info(out),
            StatusKind::Table => out.write_str(self.line.words()),
            StatusKind::Ima => Ok(()),
        };
    }

    fn message(
        &self,
        _ti: &Instance<'_>,
        args: Args<'_>,
        out: &mut ResultText<'_>,
    ) -> Result<Reply> {
        let mut words = KVec::with_capacity(args.len(), GFP_KERNEL)?;
        for index in 0..args.len() {
            words.push(args.str(index).ok_or(EINVAL)?, GFP_KERNEL)?;
        }
        let refuse = |error: MessageError| {
            rt::warn!("{}: {}", self.running().instance(), error);
            kernel_error(Errno::from(error))
        };
        let message = Message::parse(&words).map_err(refuse)?;
        if message.may_run_beside_others() {
            return self.carry_out(message, out);
        }
        if self.busy.swap(true, Ordering::Acquire) {
            return Err(refuse(MessageError::Busy));
        }
        let reply = self.carry_out(message, out);
        self.busy.store(false, Ordering::Release);
        reply
    }

    fn presuspend(&self, ti: &Instance<'_>) {
        self.running()
            .prepare_suspend(if ti.is_suspending_noflush() {
                SuspendKind::NoFlush
            } else {
                SuspendKind::Save
            });
    }

    fn postsuspend(&self, _ti: &Instance<'_>) {
        self.running().suspend();
    }

    fn preresume(&self, ti: &Instance<'_>) -> Result {
        self.running().resume(&self.line).map_err(|error| {
            rt::error!("{}: cannot resume the volume: {}", ti.device_name(), error);
            engine_error(error)
        })
    }

    fn iterate_devices(&self, _ti: &Instance<'_>, callout: &Callout<'_>) -> c_int {
        let blocks = self.running().volume().super_block().config.physical_blocks;
        callout.call(self.device, 0, blocks.saturating_mul(BLOCK_SECTORS))
    }

    fn io_hints(&self, _ti: &Instance<'_>, limits: &mut QueueLimits<'_>) {
        limits.set_logical_block_bytes(self.line.logical_block_size.bytes());
        limits.set_physical_block_bytes(BLOCK_BYTES);
        limits.set_io_min_bytes(BLOCK_BYTES);
        limits.set_io_opt_bytes(BLOCK_BYTES);
        let discard_blocks = self.line.options.max_discard_blocks;
        limits.set_max_discard_sectors(discard_blocks.saturating_mul(SECTORS_PER_BLOCK as u32));
        limits.set_discard_granularity_bytes(BLOCK_BYTES);
    }
}

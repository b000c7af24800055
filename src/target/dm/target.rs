// SPDX-License-Identifier: GPL-2.0

//! The target: one for each table that is loaded.

use core::fmt::Write;
use core::sync::atomic::{AtomicBool, Ordering};

use kernel::prelude::*;
use kernel::str::CString;
use kernel::sync::{new_mutex, Arc, Mutex};

use super::codecs::{self_test, Refusal, Selection, Wish};
use super::registry::{AttachError, Registry};
use super::request::BioRequest;
use super::running::{OpenError, Request, Running};
use crate::engine::error::Error as EngineError;
use crate::engine::statistics::OperatingMode;
use crate::engine::units::{BLOCK_SIZE, SECTORS_PER_BLOCK};
use crate::engine::volume::{DowngradeError, SuspendKind};
use crate::kapi::block_on::block_on;
use crate::kapi::device_mapper::{
    Args, Callout, Constructor, DeviceId, Features, Incoming, Instance, MappedDevice, Mapping,
    QueueLimits, Reply, ResultText, StatusKind, Target,
};
use crate::rt;
use crate::target::compress_stats::{write_compress_stats, CompressReport};
use crate::target::compression_type::{CompressionType, NeedsUpgrade};
use crate::target::config::{write_config, ConfigReport};
use crate::target::driver_list::DriverList;
use crate::target::errno::Errno;
use crate::target::messages::{Message, MessageError};
use crate::target::reload::{check_reload, VolumeCondition};
use crate::target::stats::write_stats;
use crate::target::status::InfoStatus;
use crate::target::table_line::{TableLine, TargetRange};
use crate::target::table_options::IndexMemory;
use crate::target::upgrade_text::write_upgrade_plan;

/// Sectors of a block, for numbers of sectors.
const BLOCK_SECTORS: u64 = SECTORS_PER_BLOCK as u64;
/// Bytes of a block, for limits and sizes.
const BLOCK_BYTES: u32 = BLOCK_SIZE as u32;

/// A table of a volume.
pub(crate) struct VdoTarget {
    line: Arc<TableLine>,
    device: DeviceId,
    attachment: Attachment,
    /// What the table asks for, until the first resume with it.
    request: Pin<KBox<Mutex<Request>>>,
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
    ) -> Result<(Attachment, Option<Selection>)> {
        let mapped_device = ti.instance().mapped_device();
        let mut refusal = None;
        let mut selection = None;
        let number = ti.device(device)?.number();
        let attached = registry.attach(
            mapped_device,
            number,
            |running| {
                match check(running, line, number) {
                    Ok(selected) => selection = selected,
                    Err(reason) => refusal = Some(reason),
                }
                refusal.is_none()
            },
            |instance| Running::open(instance, ti.device(device)?, line),
        );
        match attached {
            Ok(running) => Ok((
                Attachment {
                    registry: registry.clone(),
                    mapped_device,
                    running,
                },
                selection,
            )),
            Err(AttachError::Shared) => {
                Err(ti.fail(EINVAL, fmt!("cannot share storage device with running VDO")))
            }
            Err(AttachError::Reload) => Err(match refusal {
                Some(CheckError::Text(text)) => ti.fail(EINVAL, format_args!("{}", text)),
                Some(CheckError::Open(error)) => refuse(ti, error),
                None => EINVAL,
            }),
            Err(AttachError::Open(error)) => Err(refuse(ti, error)),
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
        let volume = running.volume();
        let figures = running.codecs().figures().map_err(|_| core::fmt::Error)?;
        running
            .codecs()
            .current(|in_use| {
                write_compress_stats(
                    out,
                    &CompressReport {
                        requested: in_use.wish.compression_type,
                        algorithm: in_use.algorithm,
                        driver: in_use.driver,
                        asynchronous: in_use.is_async,
                        enabled: volume.compresses(),
                        format: in_use.format,
                        compress_accelerators: in_use.wish.compression,
                        decompress_accelerators: in_use.wish.decompression,
                        backing_off: in_use.is_backing_off,
                        verify: volume.verifies_compression(),
                        required: volume.required_flags(),
                        codec: volume.statistics().codec.snapshot(),
                        blocks: volume.blocks_by_code(),
                    },
                    figures.iter().map(|figures| &**figures),
                )
            })
            .unwrap_or(Ok(()))
    }

    fn in_use(&self) -> Result<CString> {
        self.running()
            .codecs()
            .current(|in_use| CString::try_from_fmt(fmt!("{}", in_use.driver)))
            .unwrap_or(Err(EINVAL))
    }

    /// Changes which drivers are wanted.
    fn change(&self, change: impl FnOnce(&mut Wish)) -> Result<Reply> {
        match self.running().change_wish(change) {
            Ok(()) => Ok(Reply::Done),
            Err(error) => Err(self.complain(error)),
        }
    }

    /// Says in the log why a message was not carried out.
    fn complain(&self, error: OpenError) -> Error {
        let instance = self.running().instance();
        match error {
            OpenError::Driver(refusal) => {
                rt::warn!("{}: {}", instance, refusal);
                match refusal {
                    Refusal::Kernel(error) => error,
                    _ => EINVAL,
                }
            }
            OpenError::NeedsUpgrade(wanted) => {
                rt::warn!("{}: {}", instance, NeedsUpgrade { wanted: &wanted });
                EINVAL
            }
            OpenError::Kernel(error) => error,
            OpenError::Volume(error) => {
                rt::warn!("{}: {}", instance, error);
                engine_error(error)
            }
        }
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
                match name {
                    Some(name) => self_test(name, out)?,
                    None => self_test(self.in_use()?.to_str().map_err(|_| EINVAL)?, out)?,
                }
                Ok(Reply::Text)
            }
            Message::Compression(on) => {
                volume.set_compression(on);
                Ok(Reply::Done)
            }
            Message::CompressionType(word) => {
                let wanted = CompressionType::parse(word).map_err(|error| {
                    rt::warn!("compression-type {}, not {:?}", error, word);
                    EINVAL
                })?;
                self.change(|wish| wish.compression_type = wanted)
            }
            Message::Accelerators {
                compression,
                decompression,
                list,
            } => {
                let list = DriverList::parse(list).ok_or_else(|| {
                    rt::warn!(
                        "accelerators must be auto, none, or names of drivers with commas between"
                    );
                    EINVAL
                })?;
                self.change(|wish| {
                    if compression {
                        wish.compression = list;
                    }
                    if decompression {
                        wish.decompression = list;
                    }
                })
            }
            Message::CompressionVerify(on) => {
                volume.set_compression_verify(on);
                Ok(Reply::Done)
            }
            Message::UpgradeCheck => write_upgrade_plan(out, &volume.upgrade_plan())
                .map_or(Ok(Reply::Text), |()| Ok(Reply::Text)),
            Message::Upgrade => match self.running().upgrade() {
                Ok(()) => Ok(Reply::Done),
                Err(error) => Err(self.complain(error)),
            },
            Message::Downgrade => {
                self.running()
                    .downgrade()
                    .map(|()| Reply::Done)
                    .map_err(|error| {
                        rt::warn!("{}: no downgrade: {}", self.running().instance(), error);
                        match error {
                            DowngradeError::NotUpgraded => EINVAL,
                            DowngradeError::InTheWay(_) | DowngradeError::BlocksInTheWay(_) => {
                                EBUSY
                            }
                            DowngradeError::Failed(error) => engine_error(error),
                        }
                    })
            }
            Message::Rebuild => match self.running().request_rebuild() {
                Ok(()) => Ok(Reply::Done),
                Err(error) => Err(self.complain(error)),
            },
            Message::CompressEstimate(count) => {
                if !self.running().is_active() {
                    return Err(self.complain(OpenError::Volume(EngineError::Suspended)));
                }
                let codecs = self.running().codecs();
                block_on(codecs.estimate(&volume, count, out)).map_err(|_| ENOMEM)??;
                Ok(Reply::Text)
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

/// Why a running volume cannot go on with a table.
enum CheckError {
    Text(&'static str),
    Open(OpenError),
}

/// Whether a running volume can go on with `line`, and with which drivers.
fn check(
    running: &Running,
    line: &TableLine,
    device_number: u32,
) -> core::result::Result<Option<Selection>, CheckError> {
    let condition = VolumeCondition {
        started: running.is_started(),
        recovering: running.volume().operating_mode() == OperatingMode::Recovering,
        read_only: running.volume().operating_mode() == OperatingMode::ReadOnly,
        same_device: running.device_number() == device_number,
    };
    let changes = check_reload(&running.line(), line, condition).map_err(|error| {
        rt::error!("{}: {}", running.instance(), error);
        CheckError::Text(
            error
                .summary()
                .to_str()
                .unwrap_or("the table does not suit the running volume"),
        )
    })?;
    if let Some(growth) = changes.physical {
        running
            .volume()
            .check_growth(growth.to_blocks)
            .map_err(|error| CheckError::Open(OpenError::Volume(error)))?;
    }
    running.select(line).map_err(CheckError::Open)
}

/// Tells device-mapper why a table is refused.
fn refuse(ti: &mut Constructor<'_>, error: OpenError) -> Error {
    match error {
        OpenError::Driver(refusal) => {
            rt::error!("{}", refusal);
            let errno = match refusal {
                Refusal::Kernel(error) => error,
                _ => EINVAL,
            };
            ti.fail(errno, format_args!("{}", refusal))
        }
        OpenError::NeedsUpgrade(wanted) => {
            let reason = NeedsUpgrade { wanted: &wanted };
            rt::error!("{}", reason);
            ti.fail(EINVAL, format_args!("{}", reason))
        }
        OpenError::Kernel(error) => ti.fail(error, fmt!("cannot allocate what a volume needs")),
        OpenError::Volume(error) => {
            rt::error!("cannot load the volume: {}", error);
            ti.fail(kernel_error(Errno::from(error)), format_args!("{}", error))
        }
    }
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
        let (attachment, selection) = Self::attach(ti, registry, &line, device)?;
        let request = Request {
            selection,
            upgrade: line.options.upgrade,
        };
        let request = KBox::pin_init(new_mutex!(request), GFP_KERNEL)?;
        ti.set_max_io_sectors(BLOCK_SECTORS)?;
        ti.set_flush_bios(1);
        ti.set_discard_bios(1);
        ti.support_flush();
        ti.support_discards();
        Ok(Self {
            line,
            device,
            attachment,
            request,
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
        // What a failed attempt did not get to is there for the next one.
        let mut request = self.request.lock();
        self.running()
            .resume(&self.line, &mut request)
            .map_err(|error| {
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

// SPDX-License-Identifier: GPL-2.0

//! `rvdo-pass <device> [tasks <n>] [in_flight <n>] [fail late]`: passes every block through memory
//! of its own.
//!
//! A bio is queued by `map`, taken by one of `tasks` tasks, and served with own bios of the device
//! below, of which `in_flight` exist. `fail late` lets the constructor fail when everything is in
//! place.
//!
//! Messages: `echo <word>...` answers with the words, `fill <n>` with `n` characters, `sync`
//! flushes the device below from the calling thread, `drop <n>` gives up on `n` reads that were
//! started.

use core::fmt::Write;
use core::future::Future;
use core::pin::pin;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use core::task::{Context, Waker};

use kernel::prelude::*;
use kernel::str::CString;

use crate::kapi::bio::{BlockStatus, Operation, OwnedBio, SECTOR_BYTES};
use crate::kapi::bio_queue::BioQueue;
use crate::kapi::block_device::{BlockDevice, IoFlags};
use crate::kapi::block_on::block_on;
use crate::kapi::device_mapper::{
    Args, Callout, Constructor, DeviceId, Features, Incoming, Instance, Mapping, QueueLimits,
    Reply, ResultText, StatusKind, Target,
};
use crate::kapi::executor::Executor;
use crate::rt::{Arc, Page};

const BLOCK_BYTES: u32 = 4096;
const BLOCK_SECTORS: u64 = 8;

/// How many executors there have been.
static EXECUTORS: AtomicU64 = AtomicU64::new(0);

/// How often each thing has happened.
#[derive(Default)]
struct Counts {
    reads: AtomicU64,
    writes: AtomicU64,
    flushes: AtomicU64,
    discards: AtomicU64,
    errors: AtomicU64,
    suspends: AtomicU64,
    resumes: AtomicU64,
}

/// What the tasks work with.
struct Shared {
    begin: u64,
    queue: BioQueue,
    device: BlockDevice,
    counts: Counts,
}

/// What the table line asks for.
struct Options {
    tasks: usize,
    in_flight: usize,
    fail_late: bool,
}

impl Options {
    fn parse(args: &Args<'_>) -> core::result::Result<Self, &'static str> {
        let mut options = Self {
            tasks: 64,
            in_flight: 64,
            fail_late: false,
        };
        if args.len() % 2 != 1 {
            return Err("expected a device and pairs of words");
        }
        for key in (1..args.len()).step_by(2) {
            let number = args
                .parse(key.saturating_add(1))
                .filter(|&n| n > 0 && n <= 4096);
            match args.str(key) {
                Some("tasks") => options.tasks = number.ok_or("bad number of tasks")?,
                Some("in_flight") => options.in_flight = number.ok_or("bad number in flight")?,
                Some("fail") => options.fail_late = true,
                _ => return Err("unknown option"),
            }
        }
        Ok(options)
    }
}

/// The target.
pub(crate) struct Pass {
    words: KVec<u8>,
    id: DeviceId,
    // Before what its tasks use, so that they have ended first.
    executor: Executor,
    shared: Arc<Shared>,
}

impl Pass {
    fn table_line(args: &Args<'_>) -> Result<KVec<u8>> {
        let mut words = KVec::new();
        for word in args.iter() {
            if !words.is_empty() {
                words.push(b' ', GFP_KERNEL)?;
            }
            words.extend_from_slice(word.to_bytes(), GFP_KERNEL)?;
        }
        Ok(words)
    }

    /// Starts `count` reads and drops their futures, most of them in flight.
    fn drop_reads(&self, count: u64) -> Result {
        let mut cx = Context::from_waker(Waker::noop());
        for block in 0..count {
            let page = Page::new()?;
            let sector = block.wrapping_mul(BLOCK_SECTORS) % self.shared.device.sectors().max(1);
            let read = pin!(self.shared.device.read(sector, page, IoFlags::NONE));
            let _ = read.poll(&mut cx);
        }
        Ok(())
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.shared.queue.close();
        // The executor waits for its tasks when it is dropped.
    }
}

/// Serves bios until the queue is closed.
async fn serve(shared: Arc<Shared>, mut page: Page) {
    while let Some(bio) = shared.queue.next().await {
        page = serve_one(&shared, bio, page).await;
    }
}

async fn serve_one(shared: &Shared, mut bio: OwnedBio, mut page: Page) -> Page {
    let counts = &shared.counts;
    let sector = bio.sector().wrapping_sub(shared.begin);
    let mut status = BlockStatus::OK;
    match (bio.operation(), bio.bytes()) {
        (Operation::Read, bytes) => {
            counts.reads.fetch_add(1, Relaxed);
            (page, status) = shared.device.read(sector, page, IoFlags::SYNC).await;
            if status == BlockStatus::OK && bio.copy_in(0, &page[..]) != bytes {
                status = BlockStatus::IO_ERROR;
            }
        }
        (Operation::Write, 0) => {
            counts.flushes.fetch_add(1, Relaxed);
            status = shared.device.flush().await;
        }
        (Operation::Write, bytes) => {
            counts.writes.fetch_add(1, Relaxed);
            // Nobody sends groups here: the write must not wait for that.
            let mut flags = IoFlags::NONE;
            if bio.fua() {
                flags = flags | IoFlags::FUA;
            }
            if bio.preflush() {
                flags = flags | IoFlags::PREFLUSH;
            }
            if bio.copy_out(0, &mut page[..]) == bytes && bytes == page.len() {
                (page, status) = shared.device.write(sector, page, flags).await;
            } else {
                status = BlockStatus::IO_ERROR;
            }
        }
        (Operation::Discard, _) => {
            counts.discards.fetch_add(1, Relaxed);
        }
        _ => status = BlockStatus::NOT_SUPPORTED,
    }
    if status != BlockStatus::OK {
        counts.errors.fetch_add(1, Relaxed);
    }
    bio.complete(status);
    page
}

#[vtable]
impl Target for Pass {
    const VERSION: [u32; 3] = [1, 2, 3];
    const FEATURES: Features = Features::SINGLETON;

    type Shared = ();

    fn new(ti: &mut Constructor<'_>, _shared: &kernel::sync::Arc<()>) -> Result<Self> {
        let args = ti.args();
        let options = match Options::parse(&args) {
            Ok(options) => options,
            Err(text) => return Err(ti.fail(EINVAL, fmt!("{}; got {} words", text, args.len()))),
        };
        let path = args.get(0).ok_or(EINVAL)?;
        let id = ti
            .open_device(path)
            .map_err(|e| ti.fail(e, fmt!("cannot open {}", path)))?;
        let device = BlockDevice::new(ti.device(id)?, options.in_flight)?;
        let (begin, len) = (ti.instance().begin(), ti.instance().len());
        if len > device.sectors() {
            let have = device.sectors();
            return Err(ti.fail(
                EINVAL,
                fmt!("{} has {} sectors, {} are needed", path, have, len),
            ));
        }
        let shared = Arc::new(Shared {
            begin,
            queue: BioQueue::new()?,
            device,
            counts: Counts::default(),
        })?;
        // Two tables of one device exist during a reload, and work queues have names of their own.
        let number = EXECUTORS.fetch_add(1, Relaxed);
        let name = CString::try_from_fmt(fmt!("rvdo-pass-{}", number))?;
        let this = Self {
            words: Self::table_line(&args)?,
            id,
            executor: Executor::new(&name)?,
            shared,
        };
        for _ in 0..options.tasks {
            this.executor
                .spawn(serve(this.shared.clone(), Page::new()?))?;
        }
        if options.fail_late {
            return Err(ti.fail(EPERM, fmt!("failing late, as asked")));
        }
        ti.set_max_io_sectors(BLOCK_SECTORS)?;
        ti.set_flush_bios(1);
        ti.set_discard_bios(1);
        ti.support_flush();
        ti.support_discards();
        Ok(this)
    }

    fn map<'a>(&self, _ti: &Instance<'_>, bio: Incoming<'a>) -> Mapping<'a> {
        let (bio, mapping) = bio.take();
        if let Err(bio) = self.shared.queue.push(bio) {
            bio.complete(BlockStatus::OFFLINE);
        }
        mapping
    }

    fn status(
        &self,
        _ti: &Instance<'_>,
        kind: StatusKind,
        _noflush: bool,
        out: &mut ResultText<'_>,
    ) {
        let counts = &self.shared.counts;
        let count = |counter: &AtomicU64| counter.load(Relaxed);
        let _ = match kind {
            StatusKind::Info => write!(
                out,
                "/dev/{} reads {} writes {} flushes {} discards {} errors {} suspends {} resumes {}",
                self.shared.device.name().as_str(),
                count(&counts.reads),
                count(&counts.writes),
                count(&counts.flushes),
                count(&counts.discards),
                count(&counts.errors),
                count(&counts.suspends),
                count(&counts.resumes),
            ),
            StatusKind::Table => out.write_str(core::str::from_utf8(&self.words).unwrap_or("?")),
            StatusKind::Ima => Ok(()),
        };
    }

    fn message(
        &self,
        ti: &Instance<'_>,
        args: Args<'_>,
        out: &mut ResultText<'_>,
    ) -> Result<Reply> {
        match (args.str(0), args.parse::<u64>(1)) {
            (Some("echo"), _) => {
                for word in args.iter().skip(1) {
                    write!(out, "{}.", word.to_str()?)?;
                }
                Ok(Reply::Text)
            }
            (Some("fill"), Some(count)) => {
                for _ in 0..count {
                    out.write_char('x')?;
                }
                Ok(Reply::Text)
            }
            (Some("sync"), _) => {
                block_on(self.shared.device.flush())?.into_result()?;
                ti.trigger_event();
                Ok(Reply::Done)
            }
            (Some("drop"), Some(count)) => {
                self.drop_reads(count)?;
                Ok(Reply::Done)
            }
            _ => Err(EINVAL),
        }
    }

    fn postsuspend(&self, _ti: &Instance<'_>) {
        self.shared.counts.suspends.fetch_add(1, Relaxed);
    }

    fn resume(&self, _ti: &Instance<'_>) {
        self.shared.counts.resumes.fetch_add(1, Relaxed);
    }

    fn iterate_devices(&self, ti: &Instance<'_>, callout: &Callout<'_>) -> c_int {
        callout.call(self.id, 0, ti.len())
    }

    fn io_hints(&self, _ti: &Instance<'_>, limits: &mut QueueLimits<'_>) {
        limits.set_logical_block_bytes(BLOCK_BYTES);
        limits.set_physical_block_bytes(BLOCK_BYTES);
        limits.set_io_min_bytes(BLOCK_BYTES);
        limits.set_io_opt_bytes(BLOCK_BYTES);
        limits.set_discard_granularity_bytes(BLOCK_BYTES);
        // 64 blocks.
        limits.set_max_discard_sectors((64 * BLOCK_BYTES as usize / SECTOR_BYTES) as c_uint);
    }
}

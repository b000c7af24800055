// SPDX-License-Identifier: GPL-2.0

//! `rvdo-check <acomp name> <requests> [any|synchronous [<acomp name>]]`: a device without storage, for the wrappers that
//! need none. The second name is the transform that decompresses.
//!
//! Reading it gives zeros that went through the compressor and back; writes are dropped after the same. What it can be asked
//! to do besides is in [`acomp_tests`], [`executor_tests`] and [`rt_tests`]: every message answers with one line of
//! counts, which the guest cases compare.

use core::fmt::Write;

use kernel::prelude::*;

use crate::kapi::acomp::{Acomp, Implementations};
use crate::kapi::acomp_pool::AcompPool;
use crate::kapi::bio::{BlockStatus, Operation, OwnedBio};
use crate::kapi::bio_queue::BioQueue;
use crate::kapi::device_mapper::{
    Args, Constructor, Incoming, Instance, Mapping, QueueLimits, Reply, ResultText, Target,
};
use crate::kapi::executor::Executor;
use crate::rt::Arc;
use crate::{acomp_tests, executor_tests, rt_tests};

const BLOCK_BYTES: u32 = 4096;
const SERVERS: usize = 16;

/// What the tasks work with.
pub(crate) struct Shared {
    pub(crate) pool: AcompPool,
    /// The pool that decompresses, if it is another one.
    back: Option<AcompPool>,
    queue: BioQueue,
}

impl Shared {
    pub(crate) fn back(&self) -> &AcompPool {
        self.back.as_ref().unwrap_or(&self.pool)
    }
}

/// The target.
pub(crate) struct Check {
    // Before what its tasks use, so that they have ended first.
    servers: Executor,
    /// For the tasks of messages, which wait for all of them.
    executor: Executor,
    shared: Arc<Shared>,
}

impl Drop for Check {
    fn drop(&mut self) {
        self.shared.queue.close();
    }
}

async fn serve(shared: Arc<Shared>, mut buffers: acomp_tests::Buffers) {
    while let Some(bio) = shared.queue.next().await {
        let status = match acomp_tests::round_trip(&shared, &mut buffers, 0).await {
            acomp_tests::Outcome::Same => BlockStatus::OK,
            _ => BlockStatus::IO_ERROR,
        };
        answer(bio, status, &buffers);
    }
}

fn answer(mut bio: OwnedBio, status: BlockStatus, buffers: &acomp_tests::Buffers) {
    if let (BlockStatus::OK, Operation::Read) = (status, bio.operation()) {
        let _ = bio.copy_in(0, buffers.output());
    }
    bio.complete(status);
}

#[vtable]
impl Target for Check {
    const VERSION: [u32; 3] = [1, 0, 0];

    type Shared = ();

    fn new(ti: &mut Constructor<'_>, _shared: &kernel::sync::Arc<()>) -> Result<Self> {
        let args = ti.args();
        let name = args.get(0).ok_or(EINVAL)?;
        let requests = args
            .parse(1)
            .filter(|&n| n > 0 && n <= 4096)
            .ok_or(EINVAL)?;
        let which = match args.str(2) {
            None | Some("any") => Implementations::Any,
            Some("synchronous") => Implementations::Synchronous,
            Some(_) => return Err(EINVAL),
        };
        let acomp = Acomp::new(name, which).map_err(|e| ti.fail(e, fmt!("no {}", name)))?;
        let back = match args.get(3) {
            None => None,
            Some(name) => Some(AcompPool::new(
                Acomp::new(name, Implementations::Any)?,
                requests,
            )?),
        };
        let shared = Arc::new(Shared {
            pool: AcompPool::new(acomp, requests)?,
            back,
            queue: BioQueue::new()?,
        })?;
        let this = Self {
            servers: Executor::new(c"rvdo-check-io")?,
            executor: Executor::new(c"rvdo-check")?,
            shared,
        };
        for _ in 0..SERVERS {
            let buffers = acomp_tests::Buffers::new()?;
            this.servers.spawn(serve(this.shared.clone(), buffers))?;
        }
        ti.set_max_io_sectors(u64::from(BLOCK_BYTES / 512))?;
        Ok(this)
    }

    fn map<'a>(&self, _ti: &Instance<'_>, bio: Incoming<'a>) -> Mapping<'a> {
        let (bio, mapping) = bio.take();
        if let Err(bio) = self.shared.queue.push(bio) {
            bio.complete(BlockStatus::OFFLINE);
        }
        mapping
    }

    fn message(
        &self,
        _ti: &Instance<'_>,
        args: Args<'_>,
        out: &mut ResultText<'_>,
    ) -> Result<Reply> {
        match args.str(0) {
            Some("driver") => {
                let acomp = self.shared.pool.acomp();
                let kind = if acomp.is_async() {
                    "asynchronous"
                } else {
                    "synchronous"
                };
                write!(
                    out,
                    "{} {} {}",
                    acomp.algorithm_name().to_str()?,
                    acomp.driver_name().to_str()?,
                    kind
                )?;
            }
            Some("in_flight") => write!(out, "{}", self.shared.pool.in_flight())?,
            Some("round_trips") => {
                acomp_tests::round_trips(&self.executor, &self.shared, &args, out)?;
            }
            Some("abandon") => acomp_tests::abandon(&self.shared.pool, &args, out)?,
            Some("ring") => executor_tests::ring(&self.executor, &args, out)?,
            Some("timers") => executor_tests::timers(&self.executor, &args, out)?,
            Some("crowd") => executor_tests::crowd(&self.executor, &args, out)?,
            Some("naps") => executor_tests::naps(&self.executor, &args, out)?,
            Some("late") => executor_tests::late(&self.executor, &args, out)?,
            Some("rt") => rt_tests::all(out)?,
            _ => return Err(EINVAL),
        }
        Ok(Reply::Text)
    }

    fn io_hints(&self, _ti: &Instance<'_>, limits: &mut QueueLimits<'_>) {
        limits.set_logical_block_bytes(BLOCK_BYTES);
        limits.set_physical_block_bytes(BLOCK_BYTES);
        limits.set_io_min_bytes(BLOCK_BYTES);
    }
}

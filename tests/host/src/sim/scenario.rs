// SPDX-License-Identifier: GPL-2.0

//! A life of a volume that the seed makes up: its shape, the hardware, the users, what goes wrong.

use super::audit::volume::state;
use super::codec::Behaviour;
use super::content::DataMix;
use super::disk::{Fault, Kind, Latency};
use super::harness::Sim;
use super::mkfs::Shape;
use super::rng::Rng;
use super::workload::Workload;
use crate::engine::env::{IoError, RequestError};
use crate::engine::format::StreamFormat;
use crate::engine::volume::SuspendKind;

/// Lives through about `operations` operations: several starts, suspends and crashes in between,
/// and in the end perhaps a power failure.
pub fn any_life(sim: &mut Sim, operations: u64) -> Result<(), String> {
    let mut rng = sim.rng.fork();
    let shape = any_shape(&mut rng);
    sim.format(shape);
    sim.parameters.cache_pages = *rng.pick(&[24, 40, 64, 128, 512]);
    let packs = rng.percent(80);
    // Often fewer than the bins of the packer can hold.
    sim.parameters.requests = *rng.pick(&[1, 4, 16, 64, 256, 256, 256, 1_024]);
    sim.parameters.compression = packs;
    sim.parameters.maximum_age_blocks = any_age(&mut rng, shape.journal_blocks);
    sim.parameters.index_entries = *rng.pick(&[64, 256, 4096]);
    sim.world().accepted_errors.push(RequestError::NoSpace);

    let phases = rng.between(1, 6);
    for phase in 0..phases {
        sim.disk().set_latency(any_latency(&mut rng));
        sim.codec().set_behaviour(any_codec(&mut rng));
        // Power may also fail while the volume is loaded, recovered or saved.
        sim.crash_every(rng.percent(30).then_some(50));
        while !sim.is_running() {
            if phase > 0 && rng.percent(25) {
                sim.start_until_crash(rng.between(1, 600))?;
            } else {
                sim.start()?;
            }
        }
        sim.volume().set_compression(packs && rng.percent(85));
        sim.volume().set_deduplication(rng.percent(85));
        match rng.below(10) {
            0 => sim.upgrade(*rng.pick(&[StreamFormat::Deflate, StreamFormat::Zstd]))?,
            1 => sim.upgrade(StreamFormat::Lz4)?,
            // What a volume that was not upgraded must not store.
            2 => sim
                .codec()
                .set_format(*rng.pick(&[StreamFormat::Deflate, StreamFormat::Zstd])),
            _ => {}
        }
        let workload = any_workload(&mut rng, &shape, operations / phases);
        if rng.percent(30) {
            let moments = rng.between(1, workload.operations * 8);
            sim.work_until_crash(workload, moments)?;
            continue;
        }
        let crashes = *rng.pick(&[0, 2, 10]);
        sim.work_with_crashes(workload, crashes)?;
        end_of_phase(sim, &mut rng)?;
    }
    if !sim.is_running() {
        sim.start()?;
        sim.read_back()?;
    }
    sim.stop()?;
    sim.audit_saved()
}

fn end_of_phase(sim: &mut Sim, rng: &mut Rng) -> Result<(), String> {
    match rng.below(4) {
        0 => sim.read_back(),
        1 => {
            sim.suspend(SuspendKind::NoFlush)?;
            sim.audit_crashes(2)?;
            sim.resume()
        }
        2 => {
            sim.suspend(SuspendKind::Save)?;
            sim.audit_saved()?;
            sim.audit_crashes(1)?;
            sim.resume()?;
            sim.audit_crashes(1)
        }
        _ => {
            sim.stop()?;
            sim.audit_saved()?;
            sim.audit_crashes(1)
        }
    }
}

/// A life in which the device fails: what was flushed survives, also a forced rebuild.
pub fn faulty_life(sim: &mut Sim, operations: u64) -> Result<(), String> {
    let mut rng = sim.rng.fork();
    let shape = any_shape(&mut rng);
    sim.format(shape);
    sim.parameters.cache_pages = *rng.pick(&[2, 6, 24, 64, 512]);
    sim.parameters.maximum_age_blocks = any_age(&mut rng, shape.journal_blocks);
    sim.disk().set_latency(any_latency(&mut rng));
    let errors = [
        RequestError::NoSpace,
        RequestError::Io,
        RequestError::ReadOnly,
    ];
    sim.world().accepted_errors.extend(errors);
    sim.start()?;
    sim.work(any_workload(&mut rng, &shape, operations / 4))?;

    for _ in 0..rng.between(1, 4) {
        sim.disk().inject(any_fault(&mut rng, &shape, operations));
    }
    sim.work(any_workload(&mut rng, &shape, operations / 2))?;
    sim.disk().heal();
    if !sim.is_read_only() {
        sim.work(any_workload(&mut rng, &shape, operations / 4))?;
    }
    sim.read_back()?;
    // A write that nobody waits for any more may have failed at the very end.
    sim.suspend(SuspendKind::Save)?;
    let read_only = sim.is_read_only();
    sim.end()?;
    if !read_only {
        return sim.audit_saved();
    }
    // A volume that was left read-only comes up as its block map pages are; what only the recovery
    // journal knows is missing until a rebuild. One that could not even record it recovers.
    sim.after_loss();
    sim.start()?;
    sim.suspend(SuspendKind::Save)?;
    sim.end()?;
    sim.after_loss();
    sim.change_super_block(|block| block[40] = state::FORCE_REBUILD as u8);
    sim.start()?;
    sim.read_back()?;
    sim.work(any_workload(&mut rng, &shape, operations / 4))?;
    sim.stop()?;
    sim.audit_saved()
}

/// A few errors somewhere.
fn any_fault(rng: &mut Rng, shape: &Shape, operations: u64) -> Fault {
    let all = 1..shape.physical_blocks();
    let depot = shape.data_start + 61;
    let blocks = match rng.below(5) {
        // The super block.
        0 => shape.data_start..shape.data_start + 1,
        // Roots of the block map.
        1 => shape.data_start + 1..depot,
        // Recovery journal and summary.
        2 => shape.physical_blocks() - 64 - shape.journal_blocks..shape.physical_blocks(),
        // The metadata of the first slab.
        3 => depot + shape.data_blocks()..depot + shape.slab_blocks,
        _ => all,
    };
    Fault {
        kind: *rng.pick(&[Kind::Read, Kind::Write, Kind::Flush]),
        blocks,
        skip: *rng.pick(&[0, 10, operations / 4]),
        count: *rng.pick(&[1, 1, 5, u64::MAX]),
        error: *rng.pick(&[IoError::Io, IoError::Timeout]),
    }
}

/// From a volume that is full after a few hundred writes to one of the usual proportions.
pub fn any_shape(rng: &mut Rng) -> Shape {
    // In the smallest ones every block is allocated again and again.
    let (slab_bits, slab_journal_blocks, slabs_max) = *rng.pick(&[
        (8, 8, 2),
        (8, 8, 6),
        (9, 8, 12),
        (10, 8, 12),
        (11, 16, 12),
        (13, 16, 3),
        (13, 64, 3),
    ]);
    Shape {
        slab_blocks: 1 << slab_bits,
        slabs: rng.between(1, slabs_max),
        slab_journal_blocks,
        journal_blocks: *rng.pick(&[16, 32, 64, 256]),
        logical_blocks: *rng.pick(&[812, 5_000, 60 * 812, 100_000, 10_000_000]),
        nonce: rng.next(),
        ..Shape::SMALL
    }
}

fn any_age(rng: &mut Rng, journal_blocks: u64) -> u64 {
    let usable = journal_blocks - (journal_blocks / 4).min(11);
    rng.between(1, usable / 2)
}

/// From a disk that answers at once to one that keeps hundreds of operations under way.
pub fn any_latency(rng: &mut Rng) -> Latency {
    let (max, slow_permille, slow_max) = *rng.pick(&[
        (1, 0, 1),
        (4, 0, 4),
        (40, 10, 400),
        (300, 20, 5_000),
        (3_000, 0, 3_000),
    ]);
    Latency {
        min: 1,
        max,
        slow_permille,
        slow_max,
    }
}

/// Compressors of every temper. Decompressions do not fail here: that is an error for the user.
pub fn any_codec(rng: &mut Rng) -> Behaviour {
    Behaviour {
        latency: any_latency(rng),
        compress_failures_permille: *rng.pick(&[0, 0, 20, 500]),
        incompressible_permille: *rng.pick(&[0, 0, 100]),
        decompress_failures_permille: 0,
    }
}

/// Users of every kind.
pub fn any_workload(rng: &mut Rng, shape: &Shape, operations: u64) -> Workload {
    let data = *rng.pick(&[
        DataMix::ALL,
        DataMix::ALL,
        DataMix::UNIQUE,
        DataMix::COMPRESSIBLE,
        DataMix::DUPLICATES,
        DataMix::SAME,
    ]);
    Workload {
        operations: operations.max(1),
        clients: *rng.pick(&[1, 4, 16, 64, 200]),
        pages: rng.between(1, 24).min(shape.logical_blocks.div_ceil(812)),
        blocks_per_page: *rng.pick(&[1, 10, 60, 300, 800]),
        reads: *rng.pick(&[5, 20, 60]),
        discards: *rng.pick(&[0, 3, 15]),
        flushes: *rng.pick(&[0, 1, 5, 20]),
        fua: *rng.pick(&[0, 2, 20, 100]),
        partial: *rng.pick(&[0, 10, 60]),
        races: *rng.pick(&[0, 5, 30]),
        discard_blocks_max: *rng.pick(&[1, 4, 50]),
        data,
        data_pool: *rng.pick(&[1, 4, 64, 1_000]),
        pause_max: *rng.pick(&[0, 0, 20, 2_000]),
    }
}

// SPDX-License-Identifier: GPL-2.0

//! More physical blocks for a volume in the simulation: whenever the power fails, it is the volume from before or the larger one.

use std::sync::Arc;

use rvdo_host::engine::env::RequestError;
use rvdo_host::engine::error::Error;
use rvdo_host::engine::format::{FormatError, StreamFormat};
use rvdo_host::engine::volume::SuspendKind;
use rvdo_host::sim::content::DataMix;
use rvdo_host::sim::harness::Sim;
use rvdo_host::sim::mkfs::Shape;
use rvdo_host::sim::workload::Workload;

/// Small enough to be full soon.
const SHAPE: Shape = Shape {
    slab_blocks: 1 << 9,
    slabs: 2,
    slab_journal_blocks: 16,
    journal_blocks: 32,
    logical_blocks: 20_000,
    ..Shape::SMALL
};

/// Three slabs more, and some blocks that are no slab.
const LARGER: u64 = 1 + 8 + 1 + 60 + 5 * 512 + 32 + 64 + 100;

/// A volume on a device that has room behind it, which was used before.
fn insert(sim: &mut Sim) {
    let mut image = SHAPE.format();
    image.grow(LARGER);
    let noise = Arc::new(std::array::from_fn(|byte| (byte * 11 + 3) as u8));
    for block in SHAPE.physical_blocks()..LARGER {
        image.put(block, Arc::clone(&noise));
    }
    sim.insert(image);
    sim.parameters.logical_blocks = SHAPE.logical_blocks;
    sim.world().accepted_errors.push(RequestError::NoSpace);
}

/// Blocks for data and for the map in the slabs from before.
const TWO_SLABS: u64 = 2 * (512 - 16 - 1);

/// More data than two slabs take.
fn much(operations: u64) -> Workload {
    Workload {
        pages: 8,
        blocks_per_page: 200,
        data: DataMix::UNIQUE,
        ..Workload::new(operations)
    }
}

fn physical_blocks(sim: &Sim) -> u64 {
    sim.volume().super_block().config.physical_blocks
}

#[test]
fn a_full_volume_that_grows_has_room_again() {
    for kind in [SuspendKind::Save, SuspendKind::NoFlush] {
        Sim::seeds(0..4).run(|sim| {
            insert(sim);
            sim.start()?;
            sim.work(much(3_000))?;
            sim.parameters.physical_blocks = Some(LARGER);
            sim.suspend(kind)?;
            let used = sim.volume().snapshot().data_blocks_used;
            assert_eq!(sim.grow(LARGER)?, Some(Ok(())));
            assert_eq!(physical_blocks(sim), LARGER);
            assert_eq!(sim.volume().snapshot().data_blocks_used, used);
            sim.read_back()?;
            sim.work_with_crashes(much(3_000), 20)?;
            assert!(sim.volume().snapshot().data_blocks_used > TWO_SLABS);
            sim.stop()?;
            sim.audit_saved()?;
            sim.start()?;
            sim.read_back()?;
            sim.stop()
        });
    }
}

#[test]
fn power_may_fail_at_any_moment_of_it() {
    Sim::seeds(0..2).run(|sim| {
        let (mut moments, mut stayed) = (0, 0);
        loop {
            *sim.world() = Default::default();
            insert(sim);
            sim.parameters.physical_blocks = None;
            sim.start()?;
            sim.work(much(150))?;
            sim.suspend(SuspendKind::Save)?;
            sim.cut_power_after(Some(moments));
            let grown = sim.grow(LARGER)?;
            if grown.is_none() {
                sim.start()?;
            }
            match physical_blocks(sim) {
                LARGER => {}
                blocks if blocks == SHAPE.physical_blocks() => stayed += 1,
                other => panic!("{other} blocks"),
            }
            sim.read_back()?;
            sim.work(much(150))?;
            sim.stop()?;
            sim.audit_saved()?;
            if grown.is_some() {
                break;
            }
            moments += 7;
        }
        // 32 + 64 blocks are read and written, with two moments each, before the super block.
        assert!(stayed > 380 / 7, "{stayed}");
        Ok(())
    });
}

#[test]
fn upgraded_volumes_grow_with_their_algorithm_maps() {
    Sim::seeds(0..4).run(|sim| {
        insert(sim);
        sim.start()?;
        sim.work(much(400))?;
        sim.upgrade(StreamFormat::Deflate)?;
        assert!(sim.volume().has_algorithm_map());
        sim.work(much(400))?;
        sim.suspend(SuspendKind::NoFlush)?;
        assert_eq!(sim.grow(LARGER)?, Some(Ok(())));
        assert!(sim.volume().has_algorithm_map());
        sim.work_with_crashes(much(2_000), 20)?;
        sim.stop()?;
        sim.audit_saved()
    });
}

#[test]
fn growth_that_cannot_be_leaves_the_volume_running() {
    Sim::seeds(0..1).run(|sim| {
        insert(sim);
        sim.start()?;
        sim.work(much(300))?;
        let now = SHAPE.physical_blocks();
        // Not a whole slab more.
        let required = now + 512;
        let reason = FormatError::NoSpace {
            required,
            available: required - 1,
        };
        sim.suspend(SuspendKind::Save)?;
        assert_eq!(sim.grow(required - 1)?, Some(Err(Error::Format(reason))));
        sim.suspend(SuspendKind::NoFlush)?;
        assert!(matches!(
            sim.grow(LARGER + 1)?,
            Some(Err(Error::Mismatch(_)))
        ));
        assert_eq!(physical_blocks(sim), now);
        sim.work(much(300))?;
        sim.suspend(SuspendKind::Save)?;
        assert_eq!(sim.grow(required)?, Some(Ok(())));
        sim.work(much(300))?;
        sim.stop()?;
        sim.audit_saved()
    });
}

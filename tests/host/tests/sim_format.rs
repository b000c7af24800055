// SPDX-License-Identifier: GPL-2.0

//! Formatting in the simulation: an empty device becomes a volume, whatever lies on it and whenever the power fails, and a volume
//! that lost its first block is left alone.

use std::sync::Arc;

use rvdo_host::engine::error::Error;
use rvdo_host::engine::format::formatter::FormatParams;
use rvdo_host::engine::format::index_config::IndexConfig;
use rvdo_host::engine::format::FormatError;
use rvdo_host::engine::units::Nonce;
use rvdo_host::sim::harness::Sim;
use rvdo_host::sim::image::{Blocks, Image, BLOCK_SIZE};
use rvdo_host::sim::workload::Workload;

const SLABS: u64 = 2;
const SLAB_BLOCKS: u64 = 1 << 13;

/// A small volume with short journals.
fn small() -> FormatParams {
    let index_blocks = IndexConfig::SMALLEST.region_blocks();
    let mut params = FormatParams::new(
        1 + index_blocks + 1 + 60 + SLABS * SLAB_BLOCKS + 64 + 64,
        100_000,
        SLAB_BLOCKS,
        IndexConfig::SMALLEST,
        Nonce::new(0x1122_3344_5566_7788),
        [7; 16],
    );
    params.config.recovery_journal_size = 64;
    params.config.slab_journal_blocks = 16;
    params.index_blocks = index_blocks;
    params
}

/// A device that was used before, but for its first block. In the midst of the index nothing is looked at.
fn used_device(blocks: u64) -> Image {
    let mut image = Image::new(blocks);
    let noise = Arc::new(std::array::from_fn(|byte| (byte * 7 + 1) as u8));
    let index_blocks = IndexConfig::SMALLEST.region_blocks();
    for block in (1..8).chain(index_blocks - 8..blocks) {
        image.put(block, Arc::clone(&noise));
    }
    image
}

fn insert_used(sim: &mut Sim, params: &FormatParams) {
    sim.insert(used_device(params.config.physical_blocks));
    sim.parameters.logical_blocks = params.config.logical_blocks;
}

fn first_block_is_empty(sim: &Sim) -> bool {
    *sim.disk().contents().block(0) == [0; BLOCK_SIZE]
}

#[test]
fn a_formatted_device_is_a_volume() {
    let params = small();
    Sim::seeds(0..4).run(|sim| {
        insert_used(sim, &params);
        assert_eq!(sim.format_if_empty(params), Some(Ok(true)));
        assert_eq!(sim.format_if_empty(params), Some(Ok(false)));
        sim.start()?;
        sim.work_with_crashes(Workload::new(1_000), 10)?;
        sim.stop()?;
        sim.audit_saved()
    });
}

/// Until the geometry block is there, nothing is; then all is.
#[test]
fn formatting_is_begun_anew_after_a_power_failure() {
    let params = small();
    Sim::seeds(0..1).run(|sim| {
        let (mut moments, mut again) = (0, 0);
        loop {
            insert_used(sim, &params);
            sim.cut_power_after(Some(moments));
            let done = sim.format_if_empty(params).is_some();
            sim.cut_power_after(None);
            if first_block_is_empty(sim) {
                assert!(!done);
                again += 1;
                assert_eq!(sim.format_if_empty(params), Some(Ok(true)));
            }
            sim.start()?;
            sim.work(Workload::new(20))?;
            sim.stop()?;
            sim.audit_saved()?;
            sim.after_loss();
            *sim.world() = Default::default();
            if done {
                break;
            }
            moments += 1;
        }
        // A write has two moments: 1 + 60 + 64 of them before the super block.
        assert!(again > 250, "{again} times");
        Ok(())
    });
}

#[test]
fn a_volume_without_its_first_block_is_not_formatted() {
    let params = small();
    Sim::seeds(0..1).run(|sim| {
        sim.insert(Image::new(params.config.physical_blocks));
        sim.parameters.logical_blocks = params.config.logical_blocks;
        assert_eq!(sim.format_if_empty(params), Some(Ok(true)));
        sim.start()?;
        sim.stop()?;
        let mut image = sim.disk().contents();
        image.put(0, Arc::new([0; BLOCK_SIZE]));
        sim.insert(image);
        // What would be made has another index, and its super block at another place.
        let mut other = params;
        other.index_blocks = 8;
        let refused = sim.format_if_empty(other);
        assert!(
            matches!(refused, Some(Err(Error::Unsupported(_)))),
            "{refused:?}"
        );
        assert!(first_block_is_empty(sim));
        Ok(())
    });
}

#[test]
fn a_device_that_is_too_small_stays_as_it_is() {
    let mut params = small();
    params.config.physical_blocks -= SLABS * SLAB_BLOCKS - 1;
    let required = small().config.physical_blocks - SLAB_BLOCKS;
    let available = params.config.physical_blocks;
    Sim::seeds(0..1).run(|sim| {
        insert_used(sim, &params);
        let refused = sim.format_if_empty(params);
        let reason = FormatError::NoSpace {
            required,
            available,
        };
        assert_eq!(refused, Some(Err(Error::Format(reason))));
        // The table line promises more than the device has.
        assert!(matches!(
            sim.format_if_empty(small()),
            Some(Err(Error::Mismatch(_)))
        ));
        assert_eq!(sim.disk().counts().writes, 0);
        Ok(())
    });
}

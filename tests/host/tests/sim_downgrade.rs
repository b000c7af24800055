// SPDX-License-Identifier: GPL-2.0

//! What a volume that was downgraded must never have again.

use rvdo_host::engine::format::StreamFormat;
use rvdo_host::engine::volume::SuspendKind;
use rvdo_host::sim::audit::{audit, Strictness};
use rvdo_host::sim::harness::Sim;
use rvdo_host::sim::image::Block;
use rvdo_host::sim::mkfs::Shape;

/// With and without room for algorithm maps.
const SLAB_BLOCKS: [u64; 2] = [1 << 13, 1 << 9];
const BLOCKS: u64 = 28;

fn shape(slab_blocks: u64) -> Shape {
    Shape {
        slab_blocks,
        slabs: 3,
        slab_journal_blocks: 16,
        ..Shape::SMALL
    }
}

/// Compressible, and another for each number.
fn data(number: u64) -> Block {
    std::array::from_fn(|byte| match byte % 64 {
        0..8 => (number * 31 + byte as u64 / 64 * 7 + byte as u64) as u8,
        _ => number as u8,
    })
}

/// Writes the same blocks as always. They get to the disk.
fn write_all(sim: &mut Sim) -> Result<(), String> {
    for number in 0..BLOCKS {
        sim.write(number, data(number + 1))?;
    }
    sim.suspend(SuspendKind::Save)?;
    sim.resume()
}

fn downgrade(sim: &mut Sim) -> Result<(), String> {
    sim.codec().set_format(StreamFormat::Lz4);
    sim.volume().compressor_changed();
    let downgraded = sim.task("downgrade", |volume| async move {
        volume.downgrade().await.map_err(|error| error.to_string())
    })?;
    assert_eq!(downgraded, Some(Ok(())));
    assert_eq!(sim.volume().required_flags(), None);
    Ok(())
}

/// The index remembers blocks that nothing refers to, and they are on the disk still. Nor are they duplicates when the volume is upgraded
/// again, before it says that it has blocks of that format.
#[test]
fn blocks_from_before_a_downgrade_are_no_duplicates() {
    for (slab_blocks, is_upgraded_again) in SLAB_BLOCKS
        .into_iter()
        .flat_map(|slab_blocks| [(slab_blocks, false), (slab_blocks, true)])
    {
        Sim::seeds(0..2).run(|sim| {
            sim.format(shape(slab_blocks));
            sim.start()?;
            sim.upgrade(StreamFormat::Deflate)?;
            write_all(sim)?;
            sim.discard_all()?;
            downgrade(sim)?;
            if is_upgraded_again {
                sim.upgrade(StreamFormat::Lz4)?;
            }
            write_all(sim)?;
            sim.stop()?;
            audit(&sim.disk().contents(), Strictness::OURS).map(drop)
        });
    }
}

/// But they are where the volume has that format, whoever wrote them.
#[test]
fn blocks_of_a_format_that_the_volume_has_are_duplicates() {
    for slab_blocks in SLAB_BLOCKS {
        Sim::seeds(0..2).run(|sim| {
            sim.format(shape(slab_blocks));
            sim.start()?;
            sim.upgrade(StreamFormat::Deflate)?;
            write_all(sim)?;
            let before = sim.volume().statistics().hash_lock.snapshot();
            sim.codec().set_format(StreamFormat::Lz4);
            sim.volume().compressor_changed();
            for number in 0..BLOCKS {
                sim.write(100 + number, data(number + 1))?;
            }
            let after = sim.volume().statistics().hash_lock.snapshot();
            assert_eq!(after.dedupe_advice_stale, 0);
            // The simulated index forgets some.
            let found = after.dedupe_advice_valid - before.dedupe_advice_valid;
            assert!(found > BLOCKS / 2, "{found}");
            sim.stop()?;
            audit(&sim.disk().contents(), Strictness::OURS).map(drop)
        });
    }
}

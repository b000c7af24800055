// SPDX-License-Identifier: GPL-2.0

//! Whole volumes in the simulation: users, power failures, audits.

use rvdo_host::engine::env::RequestError;
use rvdo_host::engine::format::StreamFormat;
use rvdo_host::engine::volume::SuspendKind;
use rvdo_host::sim::audit::decode::{DEFLATE, LZ4};
use rvdo_host::sim::audit::volume::state;
use rvdo_host::sim::content::DataMix;
use rvdo_host::sim::disk::Latency;
use rvdo_host::sim::harness::Sim;
use rvdo_host::sim::mkfs::Shape;
use rvdo_host::sim::scenario::{any_life, faulty_life};
use rvdo_host::sim::workload::Workload;

/// What was written reads back, and a saved volume passes the audit.
#[test]
fn a_saved_volume_is_sound_and_holds_what_was_written() {
    Sim::seeds(0..8).run(|sim| {
        sim.format(Shape::SMALL);
        sim.start()?;
        sim.work(Workload::new(1_500))?;
        sim.read_back()?;
        sim.stop()?;
        sim.audit_saved()
    });
}

/// A volume that is saved and started again and again stays sound.
#[test]
fn a_volume_survives_restarts() {
    Sim::seeds(100..104).run(|sim| {
        sim.format(Shape::SMALL);
        for _ in 0..4 {
            sim.start()?;
            sim.read_back()?;
            sim.work(Workload::new(400))?;
            sim.stop()?;
            sim.audit_saved()?;
        }
        Ok(())
    });
}

/// After a crash at any disk operation, every block flushed before it reads back, and any other
/// block holds one of the values written to it since its last flush.
#[test]
fn flushed_data_survives_any_crash() {
    let totals = Sim::seeds(200..208).run(|sim| {
        sim.format(Shape::SMALL);
        sim.start()?;
        sim.work_with_crashes(Workload::new(1_000), 40)?;
        sim.stop()?;
        sim.audit_saved()
    });
    assert!(totals.crashes > 0);
}

/// The same with a slow disk, on which much is under way at any time.
#[test]
fn a_slow_disk_reorders_but_loses_nothing() {
    Sim::seeds(300..304).run(|sim| {
        sim.format(Shape::SMALL);
        sim.disk().set_latency(Latency {
            min: 1,
            max: 200,
            slow_permille: 20,
            slow_max: 3_000,
        });
        sim.start()?;
        sim.work_with_crashes(Workload::new(800), 30)?;
        sim.stop()?;
        sim.audit_saved()
    });
}

/// Blocks that many refer to: reference counts reach their limit and others take over.
#[test]
fn reference_counts_run_over() {
    Sim::seeds(400..404).run(|sim| {
        sim.format(Shape::SMALL);
        sim.start()?;
        let workload = Workload {
            data: DataMix::SAME,
            data_pool: 2,
            clients: 100,
            pages: 4,
            blocks_per_page: 300,
            partial: 0,
            discards: 2,
            discard_blocks_max: 4,
            reads: 5,
            ..Workload::new(3_000)
        };
        sim.work_with_crashes(workload, 20)?;
        sim.stop()?;
        sim.audit_saved()?;
        // 1,200 blocks with two contents: each needs several homes, of which some are nearly full.
        assert!(sim.most_references()? > 150);
        Ok(())
    });
}

/// Slabs that a rebuild wrote and nobody used since stay what they are.
#[test]
fn a_rebuilt_volume_can_be_saved_and_started_again() {
    Sim::seeds(500..504).run(|sim| {
        sim.format(Shape::SMALL);
        sim.start()?;
        sim.work(Workload::new(300))?;
        sim.stop()?;
        sim.change_super_block(|block| block[40] = state::FORCE_REBUILD as u8);
        for _ in 0..3 {
            sim.start()?;
            sim.read_back()?;
            sim.stop()?;
            sim.audit_saved()?;
        }
        Ok(())
    });
}

/// A device that fails takes nothing with it that was flushed.
#[test]
fn what_was_flushed_survives_a_failing_device() {
    Sim::seeds(2_000..2_040).run(|sim| faulty_life(sim, 600));
}

/// Blocks of two formats side by side, each of which says what it is; before the upgrade only LZ4.
#[test]
fn an_upgraded_volume_holds_blocks_of_several_formats() {
    Sim::seeds(600..604).run(|sim| {
        let workload = || Workload {
            data: DataMix::COMPRESSIBLE,
            reads: 10,
            ..Workload::new(800)
        };
        let formats = |sim: &Sim| -> Result<_, String> {
            Ok((
                sim.compressed_blocks(LZ4)? > 0,
                sim.compressed_blocks(DEFLATE)? > 0,
            ))
        };
        sim.format(Shape::SMALL);
        sim.start()?;
        sim.work(workload())?;
        sim.codec().set_format(StreamFormat::Deflate);
        sim.work(workload())?;
        sim.stop()?;
        sim.audit_saved()?;
        assert_eq!(formats(sim)?, (true, false));

        sim.start()?;
        sim.upgrade(StreamFormat::Deflate)?;
        sim.work_with_crashes(workload(), 20)?;
        sim.read_back()?;
        sim.stop()?;
        sim.audit_saved()?;
        assert_eq!(formats(sim)?, (true, true));
        Ok(())
    });
}

/// Fewer requests than the packer could keep waiting: there is always one left for the flush, or the write, that frees the others.
#[test]
fn few_requests_do_not_wait_for_each_other() {
    Sim::seeds(700..718).run(|sim| {
        sim.format(Shape::SMALL);
        sim.parameters.requests = [1, 2, 3, 8, 30, 100][sim.seed as usize % 6];
        sim.start()?;
        sim.work(Workload {
            data: DataMix::COMPRESSIBLE,
            clients: 200,
            flushes: 1,
            ..Workload::new(600)
        })?;
        // A single request has nobody to be packed with.
        let packs = sim.parameters.requests > 1;
        sim.stop()?;
        sim.audit_saved()?;
        assert_eq!(sim.compressed_blocks(LZ4)? > 0, packs);
        Ok(())
    });
}

/// A volume that is opened for no request at all.
#[test]
fn no_request_is_too_few() {
    Sim::seeds(720..721).run(|sim| {
        sim.format(Shape::SMALL);
        sim.parameters.requests = 0;
        let error = sim.start().unwrap_err();
        assert!(error.contains("at least one request"), "{error}");
        Ok(())
    });
}

/// A super block that counts more blocks as used than there are is not believed; what was written can be read.
#[test]
fn impossible_usage_makes_a_volume_read_only() {
    /// Logical blocks in use, and pages of the block map, in the super block.
    const COUNTS: [usize; 2] = [273, 281];
    Sim::seeds(730..734).run(|sim| {
        sim.format(Shape::SMALL);
        sim.start()?;
        sim.work(Workload::new(200))?;
        sim.stop()?;
        let data_blocks = Shape::SMALL.slabs * Shape::SMALL.data_blocks();
        let limits = [Shape::SMALL.logical_blocks, data_blocks];
        let (at, limit) = (COUNTS[sim.seed as usize % 2], limits[sim.seed as usize % 2]);
        sim.change_super_block(|block| {
            block[at..at + 8].copy_from_slice(&(limit + 1).to_le_bytes());
        });
        sim.world().accepted_errors.push(RequestError::ReadOnly);
        sim.start()?;
        assert!(sim.is_read_only());
        sim.world().read_only = true;
        sim.read_back()?;
        sim.suspend(SuspendKind::Save)?;
        sim.end()?;
        // What there is may be in use.
        sim.change_super_block(|block| {
            block[40] = state::CLEAN as u8;
            block[at..at + 8].copy_from_slice(&limit.to_le_bytes());
        });
        sim.after_loss();
        sim.start()?;
        assert!(!sim.is_read_only());
        Ok(())
    });
}

/// Writes that are in flight when a flush arrives are packed with each other all the same.
#[test]
fn writes_that_a_flush_waits_for_share_blocks() {
    Sim::seeds(650..654).run(|sim| {
        sim.format(Shape::SMALL);
        sim.start()?;
        // Of 32 clients one or the other flushes all the time.
        sim.work(Workload {
            clients: 32,
            reads: 0,
            discards: 0,
            fua: 0,
            partial: 0,
            races: 0,
            flushes: 10,
            data: DataMix {
                duplicate: 0,
                compressible: 100,
                barely: 0,
                ..DataMix::COMPRESSIBLE
            },
            ..Workload::new(2_000)
        })?;
        let volume = sim.volume().clone();
        let packer = &volume.store().statistics().packer;
        let (fragments, blocks) = (
            packer.compressed_fragments_written.get(),
            packer.compressed_blocks_written.get(),
        );
        drop(volume);
        // If each of them left the packer as soon as it got there, 950 would be in some 300 blocks.
        assert!(
            fragments > 1_600,
            "{fragments} fragments in {blocks} blocks"
        );
        assert!(blocks < 270, "{fragments} fragments in {blocks} blocks");
        sim.read_back()?;
        sim.stop()?;
        sim.audit_saved()
    });
}

/// Volumes of all shapes on all kinds of hardware; see `scenario.rs`.
#[test]
fn any_life_of_a_volume_ends_well() {
    Sim::seeds(1_000..1_040).run(|sim| any_life(sim, 600));
}

/// The same for longer: `cargo test --release -- --ignored`, or the `soak` command.
#[test]
#[ignore = "takes minutes"]
fn any_long_life_of_a_volume_ends_well() {
    Sim::seeds(10_000..10_200).run(|sim| any_life(sim, 20_000));
}

/// Reads go on in read-only mode, whatever size the table asks for.
#[test]
fn a_read_only_volume_is_resumed_with_a_larger_table() {
    Sim::seeds(0..1).run(|sim| {
        sim.format(Shape::SMALL);
        sim.start()?;
        sim.work(Workload::new(100))?;
        sim.stop()?;
        sim.change_super_block(|block| block[40] = 3);
        sim.world().accepted_errors.push(RequestError::ReadOnly);
        sim.parameters.logical_blocks += 1000;
        sim.start()?;
        assert!(sim.is_read_only());
        sim.suspend(SuspendKind::NoFlush)?;
        sim.resume()?;
        sim.suspend(SuspendKind::Save)?;
        sim.resume()?;
        sim.work(Workload::new(100))
    });
}

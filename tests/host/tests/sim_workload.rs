// SPDX-License-Identifier: GPL-2.0

//! Whole volumes in the simulation: users, power failures, audits.

use rvdo_host::engine::format::StreamFormat;
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

// SPDX-License-Identifier: GPL-2.0

//! The algorithm maps of slabs in the simulation: power may fail at any moment, and the audit, which reads maps, journals and the
//! headers of blocks by itself, finds them in agreement.

use rvdo_host::engine::env::RequestError;
use rvdo_host::engine::format::{BlockCode, RequiredFlags, StreamFormat};
use rvdo_host::engine::volume::{DowngradeError, SuspendKind};
use rvdo_host::sim::audit::slabs::code_of;
use rvdo_host::sim::audit::volume::state;
use rvdo_host::sim::audit::{audit, Strictness};
use rvdo_host::sim::content::DataMix;
use rvdo_host::sim::harness::Sim;
use rvdo_host::sim::image::Image;
use rvdo_host::sim::mkfs::Shape;
use rvdo_host::sim::workload::Workload;

/// Slabs that are often full, with journals that often are.
const TIGHT: Shape = Shape {
    slab_blocks: 1 << 9,
    slabs: 6,
    slab_journal_blocks: 16,
    journal_blocks: 32,
    logical_blocks: 20_000,
    ..Shape::SMALL
};

const ROOMY: Shape = Shape {
    slab_blocks: 1 << 13,
    slabs: 3,
    slab_journal_blocks: 16,
    ..Shape::SMALL
};

fn compressible(operations: u64) -> Workload {
    Workload {
        data: DataMix::COMPRESSIBLE,
        pages: 6,
        blocks_per_page: 60,
        ..Workload::new(operations)
    }
}

fn mixed(operations: u64) -> Workload {
    Workload {
        pages: 6,
        blocks_per_page: 60,
        discards: 10,
        ..Workload::new(operations)
    }
}

/// Has the volume compress to `format`.
fn compress_to(sim: &mut Sim, format: StreamFormat) -> Result<(), String> {
    let admitted = sim.task("admit a format", |volume| async move {
        volume.admit_format(format).await
    })?;
    if let Some(Err(error)) = admitted {
        return Err(error.to_string());
    }
    sim.codec().set_format(format);
    sim.volume().compressor_changed();
    Ok(())
}

fn downgrade(sim: &mut Sim) -> Result<Result<(), DowngradeError>, String> {
    let result = sim.task(
        "downgrade",
        |volume| async move { volume.downgrade().await },
    )?;
    Ok(result.expect("the power was on"))
}

/// Compares what the volume says with what the blocks on the disk are, after it was saved.
fn compare_counts(sim: &mut Sim) -> Result<[u64; 16], String> {
    sim.suspend(SuspendKind::Save)?;
    let image: Image = sim.disk().contents();
    let audit = audit(&image, Strictness::OURS)?;
    let mut found = [0; 16];
    for (pbn, usage) in &audit.forest.usage {
        let code = match usage.fragments {
            0 => 0,
            _ => code_of(&audit.volume, *pbn),
        };
        if audit.volume.data_block(*pbn).is_some() {
            found[usize::from(code)] += 1;
        }
    }
    let counted = sim.volume().blocks_by_code().ok_or("there is no map")?;
    for (code, found) in found.iter().enumerate() {
        let counted = counted.with_code(BlockCode::from_low_bits(code as u8));
        if counted != *found {
            return Err(format!(
                "{counted} blocks of code {code} are counted, {found} there"
            ));
        }
    }
    sim.resume()?;
    Ok(found)
}

fn has_map(sim: &Sim) -> bool {
    sim.volume().has_algorithm_map()
        && sim
            .volume()
            .required_flags()
            .is_some_and(|flags| flags.contains(RequiredFlags::SLAB_MAP))
}

/// A volume from before is upgraded, written in all formats in turn, and started in between.
#[test]
fn maps_agree_with_headers_whatever_is_written() {
    for (shape, seeds) in [(TIGHT, 3_000..3_006), (ROOMY, 3_100..3_103)] {
        let totals = Sim::seeds(seeds).run(|sim| {
            sim.format(shape);
            sim.world().accepted_errors.push(RequestError::NoSpace);
            sim.start()?;
            sim.work(compressible(800))?;
            sim.upgrade(StreamFormat::Lz4)?;
            assert!(has_map(sim));
            let before = compare_counts(sim)?;
            assert!(before[1] > 0 && before[3] == 0, "{before:?}");
            for format in [
                StreamFormat::Deflate,
                StreamFormat::Lz4,
                StreamFormat::Deflate,
            ] {
                compress_to(sim, format)?;
                sim.work_with_crashes(compressible(300), 12)?;
                sim.work_with_crashes(mixed(300), 12)?;
                compare_counts(sim)?;
                sim.read_back()?;
                sim.stop()?;
                sim.audit_saved()?;
                sim.start()?;
            }
            let after = compare_counts(sim)?;
            assert!(after[3] > 0, "{after:?}");
            sim.read_back()?;
            sim.stop()?;
            sim.audit_saved()
        });
        assert!(totals.crashes > 0);
    }
}

/// Recoveries know the codes of blocks that only the recovery journal refers to.
#[test]
fn recoveries_complete_the_maps() {
    for (shape, seeds) in [(TIGHT, 3_200..3_216), (ROOMY, 3_300..3_306)] {
        Sim::seeds(seeds).run(|sim| {
            sim.format(shape);
            sim.world().accepted_errors.push(RequestError::NoSpace);
            sim.start()?;
            sim.work(compressible(200))?;
            sim.upgrade(StreamFormat::Deflate)?;
            for round in 0..5 {
                let moments = sim.rng.between(1, 3_000);
                sim.work_until_crash(compressible(400), moments)?;
                if sim.rng.percent(40) {
                    let moments = sim.rng.between(1, 400);
                    sim.start_until_crash(moments)?;
                }
                if !sim.is_running() {
                    sim.start()?;
                }
                let format = [StreamFormat::Lz4, StreamFormat::Deflate][round % 2];
                compress_to(sim, format)?;
                sim.work_with_crashes(mixed(60), 5)?;
            }
            sim.task("scrub", |volume| async move { volume.scrubbed().await })?;
            compare_counts(sim)?;
            sim.read_back()?;
            sim.stop()?;
            sim.audit_saved()
        });
    }
}

/// Power fails at every moment of an upgrade and of a downgrade, on paper.
#[test]
fn every_moment_of_the_way_there_and_back_is_one_or_the_other() {
    for (shape, seeds) in [(TIGHT, 3_400..3_406), (ROOMY, 3_500..3_502)] {
        let totals = Sim::seeds(seeds).run(|sim| {
            sim.format(shape);
            sim.world().accepted_errors.push(RequestError::NoSpace);
            sim.start()?;
            for _ in 0..2 {
                sim.work(compressible(300))?;
                sim.crash_every(Some(1));
                sim.upgrade(StreamFormat::Lz4)?;
                sim.crash_every(None);
                assert!(has_map(sim));
                sim.work_with_crashes(mixed(400), 10)?;
                compare_counts(sim)?;
                sim.crash_every(Some(1));
                downgrade(sim)?.map_err(|error| error.to_string())?;
                sim.crash_every(None);
                assert!(!sim.volume().has_algorithm_map());
                assert_eq!(sim.volume().required_flags(), None);
                sim.work_with_crashes(mixed(400), 10)?;
            }
            sim.read_back()?;
            sim.stop()?;
            sim.audit_saved()
        });
        println!("{totals:?}");
        assert!(totals.crashes > 200, "{totals:?}");
    }
}

/// Power fails during an upgrade or a downgrade, and the volume goes on from what is left.
#[test]
fn an_interrupted_conversion_is_begun_again() {
    Sim::seeds(3_600..3_640).run(|sim| {
        sim.format(TIGHT);
        sim.world().accepted_errors.push(RequestError::NoSpace);
        sim.start()?;
        for _ in 0..4 {
            sim.work(compressible(120))?;
            let moments = sim.rng.between(1, 120);
            sim.cut_power_after(Some(moments));
            let back = has_map(sim);
            let result = sim.task("convert", |volume| async move {
                if back {
                    volume.downgrade().await.map_err(|error| error.to_string())
                } else {
                    volume
                        .upgrade()
                        .await
                        .map(|_| ())
                        .map_err(|error| error.to_string())
                }
            })?;
            sim.cut_power_after(None);
            match result {
                Some(result) => result?,
                None => sim.start()?,
            }
            sim.work_with_crashes(mixed(150), 6)?;
            sim.read_back()?;
        }
        sim.stop()?;
        sim.audit_saved()
    });
}

/// Users do not notice.
#[test]
fn conversions_go_on_among_users() {
    Sim::seeds(3_700..3_708).run(|sim| {
        sim.format(TIGHT);
        sim.world().accepted_errors.push(RequestError::NoSpace);
        sim.start()?;
        sim.work(compressible(200))?;
        let upgraded = sim.task_among_users(compressible(400), "upgrade", |volume| async move {
            volume.upgrade().await
        })?;
        assert_eq!(upgraded.map_err(|error| error.to_string())?, true);
        compare_counts(sim)?;
        sim.crash_every(Some(40));
        let back = sim.task_among_users(mixed(400), "downgrade", |volume| async move {
            volume.downgrade().await
        })?;
        back.map_err(|error| error.to_string())?;
        let again = sim.task_among_users(mixed(400), "upgrade", |volume| async move {
            volume.upgrade().await
        })?;
        again.map_err(|error| error.to_string())?;
        sim.crash_every(None);
        compare_counts(sim)?;
        sim.read_back()?;
        sim.stop()?;
        sim.audit_saved()
    });
}

/// What is in the way of a downgrade is known without a look at it, and when it is gone the way is free.
#[test]
fn blocks_of_other_formats_are_in_the_way() {
    Sim::seeds(3_800..3_803).run(|sim| {
        sim.format(ROOMY);
        sim.start()?;
        sim.upgrade(StreamFormat::Deflate)?;
        sim.work(compressible(400))?;
        let counts = compare_counts(sim)?;
        compress_to(sim, StreamFormat::Lz4)?;
        let reads = sim.disk().counts().reads;
        match downgrade(sim)? {
            Err(DowngradeError::BlocksInTheWay(blocks)) => {
                assert_eq!(blocks.beyond_version_1(), counts[3]);
            }
            other => return Err(format!("{other:?}")),
        }
        assert_eq!(sim.disk().counts().reads, reads);
        assert!(has_map(sim));
        sim.discard_all()?;
        downgrade(sim)?.map_err(|error| error.to_string())?;
        sim.work_with_crashes(mixed(200), 10)?;
        sim.stop()?;
        sim.audit_saved()
    });
}

/// A rebuild asks the blocks.
#[test]
fn a_rebuild_makes_the_maps_anew() {
    Sim::seeds(3_900..3_904).run(|sim| {
        sim.format(ROOMY);
        sim.start()?;
        sim.work(compressible(200))?;
        sim.upgrade(StreamFormat::Deflate)?;
        sim.work(compressible(400))?;
        let before = compare_counts(sim)?;
        sim.stop()?;
        sim.change_super_block(|block| block[40] = state::FORCE_REBUILD as u8);
        sim.start()?;
        assert_eq!(compare_counts(sim)?, before);
        sim.work_with_crashes(mixed(300), 10)?;
        // Slabs whose journals a rebuild has cleared are converted like others.
        sim.stop()?;
        sim.change_super_block(|block| block[40] = state::FORCE_REBUILD as u8);
        sim.start()?;
        compress_to(sim, StreamFormat::Lz4)?;
        sim.discard_all()?;
        sim.crash_every(Some(1));
        downgrade(sim)?.map_err(|error| error.to_string())?;
        sim.upgrade(StreamFormat::Lz4)?;
        sim.crash_every(None);
        sim.work_with_crashes(compressible(300), 10)?;
        compare_counts(sim)?;
        sim.stop()?;
        sim.audit_saved()
    });
}

/// No tool but the driver knows such a volume.
#[test]
fn an_upgraded_volume_in_read_only_mode_asks_for_a_rebuild_itself() {
    let request = |sim: &mut Sim| {
        sim.task("request a rebuild", |volume| async move {
            volume
                .request_rebuild()
                .await
                .map_err(|error| error.to_string())
        })
        .map(Option::unwrap)
    };
    Sim::seeds(3_910..3_912).run(|sim| {
        sim.format(ROOMY);
        sim.start()?;
        sim.work(compressible(200))?;
        assert!(request(sim)?.unwrap_err().contains("vdoforcerebuild"));
        sim.upgrade(StreamFormat::Deflate)?;
        sim.work(compressible(400))?;
        assert!(request(sim)?.unwrap_err().contains("not in read-only mode"));
        let before = compare_counts(sim)?;
        sim.stop()?;
        sim.change_super_block(|block| block[40] = state::READ_ONLY as u8);
        sim.world().accepted_errors.push(RequestError::ReadOnly);
        sim.start()?;
        assert!(sim.is_read_only());
        assert_eq!(request(sim)?, Ok(()));
        sim.suspend(SuspendKind::Save)?;
        sim.resume()?;
        sim.stop()?;
        sim.world().accepted_errors.clear();
        sim.start()?;
        assert_eq!(compare_counts(sim)?, before);
        sim.read_back()?;
        sim.work(mixed(300))?;
        sim.stop()?;
        sim.audit_saved()
    });
}

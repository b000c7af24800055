// SPDX-License-Identifier: GPL-2.0

//! The `compress-estimate` message: what each algorithm would save on a volume, from a sample of its blocks.
//!
//! Runs on the thread of the message, with drivers of its own. Reads one block at a time, changes nothing.

use core::fmt::Write;

use kernel::prelude::*;

use super::driver::{Driver, Outcome};
use super::{Candidate, Codecs};
use crate::engine::env::Env;
use crate::engine::volume::{Sampler, Volume};
use crate::rt::{Page, PagePair};
use crate::target::estimate::Packing;
use crate::target::figures::Figures;

/// What to try besides the driver in use: one name for each thing that makes a difference.
const ALGORITHMS: [&str; 6] = [
    "lz4",
    "lz4hc",
    "deflate-generic",
    "deflate-iaa",
    "qat_deflate",
    "zstd",
];

struct Trial {
    driver: Driver,
    packing: KBox<Packing>,
}

impl Codecs {
    fn trial(&self, name: &str) -> Result<Option<Trial>> {
        // Figures of its own: an estimate is not the volume's work.
        let figures = |name: &str| Ok(crate::rt::Arc::new(Figures::new(name))?);
        let Ok(driver) = Driver::open(Candidate::Any(name), figures) else {
            return Ok(None);
        };
        let packing = KBox::new(Packing::new(driver.format()), GFP_KERNEL)?;
        Ok(Some(Trial { driver, packing }))
    }

    /// Tries every driver on up to `count` blocks of `volume` and writes what came out.
    pub(in crate::target::dm) async fn estimate<E: Env>(
        &self,
        volume: &Volume<E>,
        count: u32,
        out: &mut dyn Write,
    ) -> Result {
        let mut trials: KVec<Trial> = KVec::new();
        for name in ALGORITHMS {
            if let Some(trial) = self.trial(name)? {
                let is_new = trials
                    .iter()
                    .all(|other| other.driver.name() != trial.driver.name());
                if is_new {
                    trials.push(trial, GFP_KERNEL)?;
                }
            }
        }
        let mut sampler = Sampler::new(count.into())?;
        let mut page = Page::new()?;
        let mut packed = PagePair::new()?;
        loop {
            let found;
            (page, found) = volume.sample(&mut sampler, page).await;
            if !found {
                break;
            }
            for trial in trials.iter_mut() {
                let outcome;
                (page, packed, outcome) = trial.driver.compress(page, packed).await;
                trial.packing.add(match outcome {
                    Outcome::Done(bytes) => Some(bytes),
                    _ => None,
                });
            }
        }
        // A text that does not fit is cut, and asked for again.
        let _ = write(out, &trials, sampler.seen());
        Ok(())
    }
}

fn write(out: &mut dyn Write, trials: &[Trial], blocks: u64) -> core::fmt::Result {
    writeln!(out, "blocks sampled: {blocks}")?;
    for trial in trials {
        let packing = &trial.packing;
        let saved = packing.saved_permille();
        writeln!(
            out,
            "{}: blocks {} of {}, saved {}.{} %, payload {} bytes, incompressible {}",
            trial.driver.name(),
            packing.blocks_out(),
            packing.blocks_in(),
            saved / 10,
            saved % 10,
            packing.payload_bytes(),
            packing.incompressible(),
        )?;
    }
    Ok(())
}

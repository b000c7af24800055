// SPDX-License-Identifier: GPL-2.0

//! What a recovery would make of a depot after a power failure: an executable form of the rules that say how slab journals,
//! commit points and the recovery journal fit together. It shares the codecs with the engine and nothing else.

use super::{Ledger, Shape, NONCE};
use rvdo_host::engine::depot::ReferenceUpdate;
use rvdo_host::engine::format::reference_block;
use rvdo_host::engine::format::slab_journal::{self, entries, SlabJournalEntry, SlabJournalHeader};
use rvdo_host::engine::units::{JournalPoint, SequenceNumber};
use rvdo_host::sim::image::{Block, Blocks, Image};

/// The counters of a slab after a recovery in which the recovery journal has everything of `ledger`.
pub fn recover(
    shape: &Shape,
    image: &Image,
    ledger: &Ledger,
    slab: u64,
) -> Result<Vec<u8>, String> {
    let config = shape.config();
    let summary = shape.summary(image, slab);

    // What is on disk: blocks from the head to the tail.
    let mut blocks: Vec<Block> = Vec::new();
    let mut next = SequenceNumber::FIRST;
    let mut recovery_point = JournalPoint::ZERO;
    if let Some(position) = summary.newest_journal_position(shape.journal_blocks) {
        let tail = *image.block(shape.journal_block(slab, position));
        let header =
            SlabJournalHeader::decode(&tail).map_err(|error| format!("tail block: {error}"))?;
        header
            .check(NONCE, header.sequence)
            .map_err(|error| format!("tail block: {error}"))?;
        if header.sequence.get() % shape.journal_blocks != position {
            return Err(format!("block {} at position {position}", header.sequence));
        }
        next = header.sequence.next().unwrap();
        recovery_point = header.recovery_point;
        if summary.is_dirty {
            for sequence in header.head.get()..=header.sequence.get() {
                let block =
                    *image.block(shape.journal_block(slab, sequence % shape.journal_blocks));
                let wanted = SequenceNumber::new(sequence).unwrap();
                SlabJournalHeader::decode(&block)
                    .and_then(|header| header.check(NONCE, wanted))
                    .map_err(|error| {
                        format!("block {sequence} of {}..{next}: {error}", header.head)
                    })?;
                blocks.push(block);
            }
        }
    }

    // What the recovery journal adds, in full blocks from there on.
    let mut open: Option<Block> = None;
    for (point, pbn, update) in &ledger.entries {
        let sbn = match pbn.get().checked_sub(shape.slab_start(slab)) {
            Some(sbn) if sbn < config.data_blocks => super::sbn(sbn as u32),
            _ => continue,
        };
        if *point <= recovery_point {
            continue;
        }
        let entry = SlabJournalEntry {
            sbn,
            update: *update,
        };
        let block = open.get_or_insert_with(|| fresh(next));
        if slab_journal::append(block, entry, *point).is_err() {
            blocks.push(*block);
            next = next.next().unwrap();
            *block = fresh(next);
            slab_journal::append(block, entry, *point).unwrap();
        }
    }
    blocks.extend(open);

    // Counters as far as they are on disk, and everything newer than their commit points.
    let mut counters = vec![0; config.data_blocks as usize];
    let mut points = vec![[JournalPoint::ZERO; 8]; config.used_reference_blocks() as usize];
    if summary.load_reference_counts {
        for (index, chunk) in counters
            .chunks_mut(reference_block::COUNTERS_PER_BLOCK)
            .enumerate()
        {
            let block = image.block(shape.reference_block(slab, index as u64));
            points[index] = reference_block::decode(&block, chunk);
        }
    }
    let mut end = JournalPoint {
        sequence: next,
        entry: 0,
    };
    for block in &blocks {
        let header = SlabJournalHeader::decode(block).unwrap();
        let mut point = JournalPoint {
            sequence: header.sequence,
            entry: 0,
        };
        for entry in entries(block, &header) {
            let entry = entry.map_err(|error| error.to_string())?;
            let place = reference_block::locate(entry.sbn);
            if point > points[place.block][place.sector] {
                count(&mut counters, entry).map_err(|what| format!("{what} at {point}"))?;
            }
            point.entry += 1;
        }
        end = point;
    }
    if let Some(newest) = points.iter().flatten().max() {
        if *newest >= end {
            return Err(format!(
                "counters at {newest} are newer than the journal, which ends at {end}"
            ));
        }
    }
    Ok(counters)
}

fn fresh(sequence: SequenceNumber) -> Block {
    let mut block = [0; 4096];
    slab_journal::open(&mut block, NONCE, sequence, sequence);
    block
}

fn count(counters: &mut [u8], entry: SlabJournalEntry) -> Result<(), String> {
    let counter = &mut counters[entry.sbn.get() as usize];
    *counter = match (entry.update, *counter) {
        (ReferenceUpdate::Increment, count @ 0..=253) => count + 1,
        (ReferenceUpdate::Decrement, count @ 1..=254) => count - 1,
        (ReferenceUpdate::BlockMapIncrement, 0) => 254,
        (update, count) => return Err(format!("{update:?} of block {} with {count}", entry.sbn)),
    };
    Ok(())
}

/// Compares what a recovery would find with the ledger.
pub fn check(shape: &Shape, image: &Image, ledger: &Ledger) -> Result<(), String> {
    for slab in 0..shape.slabs {
        let counters = recover(shape, image, ledger, slab)
            .map_err(|what| format!("slab {slab} ({:?}): {what}", shape.summary(image, slab)))?;
        for (sbn, found) in counters.iter().enumerate() {
            let expected = ledger.count(shape.pbn(slab, sbn as u64));
            if *found != expected {
                return Err(format!(
                    "slab {slab} block {sbn}: {found} instead of {expected} ({:?})",
                    shape.summary(image, slab)
                ));
            }
        }
    }
    Ok(())
}

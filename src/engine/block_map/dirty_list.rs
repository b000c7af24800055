// SPDX-License-Identifier: GPL-2.0

//! The dirty frames of a shard, the one with the oldest change first.
//!
//! A doubly linked list through the frames, sorted by the journal block that each frame keeps. Changes arrive nearly in journal
//! order, so the place of a new one is found from the end in a few steps.
//!
//! Guarded by the shard's lock.

use super::frame::{Frame, Links};
use crate::engine::units::SequenceNumber;

/// The ends of the list.
#[derive(Default)]
pub(super) struct DirtyList {
    oldest: Option<u32>,
    newest: Option<u32>,
    len: usize,
}

impl DirtyList {
    /// The number of frames in the list.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The frame with the oldest change.
    pub(super) fn oldest(&self) -> Option<u32> {
        self.oldest
    }

    /// Puts a frame that is in no list behind those that are at least as old.
    pub(super) fn insert(&mut self, frames: &mut [Frame], index: u32) {
        let Some(age) = age_of(frames, index) else {
            return;
        };
        let mut previous = self.newest;
        while let Some(candidate) = previous {
            match age_of(frames, candidate) {
                Some(other) if other > age => previous = links(frames, candidate).previous,
                _ => break,
            }
        }
        let next = match previous {
            Some(previous) => links(frames, previous).next,
            None => self.oldest,
        };
        if let Some(frame) = get(frames, index) {
            frame.links = Links { previous, next };
        }
        self.connect(frames, previous, Some(index));
        self.connect(frames, Some(index), next);
        self.len = self.len.saturating_add(1);
    }

    /// Takes a frame out.
    pub(super) fn remove(&mut self, frames: &mut [Frame], index: u32) {
        let Some(frame) = get(frames, index) else {
            return;
        };
        let Links { previous, next } = core::mem::take(&mut frame.links);
        self.connect(frames, previous, next);
        self.len = self.len.saturating_sub(1);
    }

    /// Makes `previous` and `next` neighbours; `None` is the end of the list.
    fn connect(&mut self, frames: &mut [Frame], previous: Option<u32>, next: Option<u32>) {
        match previous.and_then(|index| get(frames, index)) {
            Some(frame) => frame.links.next = next,
            None => self.oldest = next,
        }
        match next.and_then(|index| get(frames, index)) {
            Some(frame) => frame.links.previous = previous,
            None => self.newest = previous,
        }
    }
}

fn get(frames: &mut [Frame], index: u32) -> Option<&mut Frame> {
    frames.get_mut(usize::try_from(index).ok()?)
}

fn links(frames: &[Frame], index: u32) -> Links {
    usize::try_from(index)
        .ok()
        .and_then(|index| frames.get(index))
        .map_or(Links::default(), |frame| frame.links)
}

fn age_of(frames: &[Frame], index: u32) -> Option<SequenceNumber> {
    let frame = frames.get(usize::try_from(index).ok()?)?;
    frame.changes.map(|changes| changes.age())
}

// SPDX-License-Identifier: GPL-2.0

//! From a volume as the in-tree driver makes it to one whose compressed blocks name their format.
//!
//! Nothing moves and no block of data changes: one write of the super block, preflushed and durable, raises the volume's version and
//! says that there may be LZ4 blocks from before. Where the slabs have room for an algorithm map it is prepared before, and comes with
//! the same write (see `algorithm_map.rs`). A crash leaves one or the other. Blocks of the new kind exist only after a further
//! write ([`Volume::admit_format`]) has said of which formats.

use super::Volume;
use crate::engine::env::Env;
use crate::engine::error::Error;
use crate::engine::format::{RequiredFlags, StreamFormat};

/// What an upgrade would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpgradePlan {
    /// What the volume requires now. `None`: nothing, it has the original format.
    pub now: Option<RequiredFlags>,
    /// What it would require afterwards.
    pub then: RequiredFlags,
    /// The volume is in a state in which it can be upgraded.
    pub possible: bool,
}

impl UpgradePlan {
    /// Whether there is nothing to do.
    pub fn is_done(&self) -> bool {
        self.now == Some(self.then)
    }
}

impl<E: Env> Volume<E> {
    /// What [`Volume::upgrade`] would do.
    pub fn upgrade_plan(&self) -> UpgradePlan {
        let now = self.required_flags();
        UpgradePlan {
            now,
            then: now.unwrap_or_default().with(self.flags_to_add()),
            possible: !self.store.read_only().is_set(),
        }
    }

    fn flags_to_add(&self) -> RequiredFlags {
        match self.takes_algorithm_map() {
            true => RequiredFlags::UPGRADED.with(RequiredFlags::SLAB_MAP),
            false => RequiredFlags::UPGRADED,
        }
    }

    /// Lets compressed blocks be of other formats than LZ4. Requests go on meanwhile. `false` if that was so already.
    pub async fn upgrade(&self) -> Result<bool, Error> {
        self.store.read_only().check()?;
        if self.upgrade_plan().is_done() {
            return Ok(false);
        }
        if self.takes_algorithm_map() {
            self.add_algorithm_map(RequiredFlags::UPGRADED).await?;
        } else {
            let update = self.super_block.update(|content| {
                let now = content.required.unwrap_or_default();
                content.required = Some(now.with(RequiredFlags::UPGRADED));
            });
            self.store
                .read_only()
                .guard(update.await, "upgrading the volume")?;
        }
        self.formats.add(StreamFormat::Lz4);
        Ok(true)
    }
}

// SPDX-License-Identifier: GPL-2.0

//! The text of `upgrade check`: what an upgrade would change, and who could not open the volume afterwards.
//!
//! Pure values: no locks, nothing to await.

use core::fmt::{self, Write};

use crate::engine::format::RequiredFlags;
use crate::engine::volume::UpgradePlan;

/// Writes the text of the `upgrade check` message.
pub fn write_upgrade_plan(out: &mut dyn Write, plan: &UpgradePlan) -> fmt::Result {
    match plan.now {
        Some(flags) => writeln!(
            out,
            "volume version now: 67.1, required flags {:#010x}",
            flags.encode()
        )?,
        None => out.write_str("volume version now: 67.0\n")?,
    }
    if plan.is_done() {
        return out.write_str("nothing to do: blocks of this volume name their format already\n");
    }
    let has_map = plan.then.contains(RequiredFlags::SLAB_MAP);
    let flags = match has_map {
        true => "lz4, per-block algorithm, slab algorithm map",
        false => "lz4, per-block algorithm",
    };
    writeln!(
        out,
        "would become: 67.1, required flags {:#010x} ({flags})",
        plan.then.encode()
    )?;
    out.write_str(match has_map {
        true => {
            "writes: a map of algorithms at the end of each slab, where its journal was; then one sector, the super block; \
             no data moves; needs no space\n"
        }
        false => {
            "writes: one sector, the super block; no data or other metadata moves; needs no space\n\
             slabs have no room for a map of algorithms: nobody keeps account of the blocks of each format\n"
        }
    })?;
    out.write_str(
        "could not open it afterwards: the in-tree dm-vdo driver and the vdo tools, until a downgrade\n\
         way back: the downgrade message, while all compressed blocks are lz4\n",
    )?;
    out.write_str(if plan.possible {
        "possible: yes\n"
    } else {
        "possible: no, the volume is in read-only mode\n"
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn the_plan_says_what_changes_and_what_is_lost() {
        let text = |now, possible| {
            let plan = UpgradePlan {
                now,
                then: RequiredFlags::UPGRADED,
                possible,
            };
            let mut text = String::new();
            write_upgrade_plan(&mut text, &plan).unwrap();
            text
        };
        let fresh = text(None, true);
        assert!(
            fresh.contains("67.0\nwould become: 67.1, required flags 0x00010001"),
            "{fresh}"
        );
        assert!(fresh.contains("nobody keeps account"), "{fresh}");
        assert!(fresh.contains("in-tree dm-vdo") && fresh.ends_with("possible: yes\n"));
        assert!(text(None, false).contains("possible: no"));
        assert!(text(Some(RequiredFlags::UPGRADED), true).contains("nothing to do"));
        assert!(!text(Some(RequiredFlags::LZ4), true).contains("nothing to do"));
    }
}

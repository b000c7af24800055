// SPDX-License-Identifier: GPL-2.0

//! What the super block says of how the volume was left.

use super::FormatError;

/// How a volume was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeState {
    /// 0: in use. Unless it still is, the machine stopped and the journal must be replayed.
    Dirty,
    /// 1: formatted and never used.
    New,
    /// 2: everything was saved.
    Clean,
    /// 3: an error that could not be recovered from was met.
    ReadOnly,
    /// 4: all metadata is to be rebuilt from the block map.
    ForceRebuild,
    /// 5: saved, while some slabs still had to be scrubbed.
    Recovering,
    /// 6: like [`VolumeState::Dirty`]. No longer written.
    Replaying,
    /// 7: like [`VolumeState::ForceRebuild`], but the rebuild is not counted as a recovery.
    RebuildForUpgrade,
}

impl VolumeState {
    /// Reads a stored state. One that is not known is refused: what it would ask for cannot be
    /// guessed.
    pub const fn decode(state: u32) -> Result<Self, FormatError> {
        Ok(match state {
            0 => Self::Dirty,
            1 => Self::New,
            2 => Self::Clean,
            3 => Self::ReadOnly,
            4 => Self::ForceRebuild,
            5 => Self::Recovering,
            6 => Self::Replaying,
            7 => Self::RebuildForUpgrade,
            _ => return Err(FormatError::UnknownState(state)),
        })
    }

    /// The stored form.
    pub const fn encode(self) -> u32 {
        match self {
            Self::Dirty => 0,
            Self::New => 1,
            Self::Clean => 2,
            Self::ReadOnly => 3,
            Self::ForceRebuild => 4,
            Self::Recovering => 5,
            Self::Replaying => 6,
            Self::RebuildForUpgrade => 7,
        }
    }

    /// Whether the recovery journal must be replayed before the volume can be used.
    pub const fn needs_recovery(self) -> bool {
        matches!(self, Self::Dirty | Self::Replaying)
    }

    /// Whether all metadata must be rebuilt from the block map.
    pub const fn needs_rebuild(self) -> bool {
        matches!(self, Self::ForceRebuild | Self::RebuildForUpgrade)
    }

    /// What `status` calls the state.
    pub const fn status_name(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::Recovering => "recovering",
            _ => "normal",
        }
    }
}

// SPDX-License-Identifier: GPL-2.0

//! The running volumes, by mapped device.
//!
//! Loading another table for a device makes a new target while the old one still runs: both refer to the same volume, which is
//! stopped when the last of them goes. The registry's mutex is held while a volume is opened or stopped, so that no two
//! tables open one device at the same time. It may sleep and is never taken by a task of a volume.

use kernel::prelude::*;
use kernel::sync::{new_mutex, Arc, Mutex};

use super::running::{OpenError, Running};
use crate::kapi::device_mapper::MappedDevice;

struct Entry {
    mapped_device: MappedDevice,
    running: Arc<Running>,
    /// Targets that refer to it.
    targets: usize,
}

struct Volumes {
    entries: KVec<Entry>,
    /// The number of the last volume that was opened.
    last_instance: u32,
}

/// All running volumes of the module.
#[pin_data]
pub(crate) struct Registry {
    #[pin]
    volumes: Mutex<Volumes>,
}

/// Why a target gets no volume.
pub(super) enum AttachError {
    /// Another volume runs on the device.
    Shared,
    /// The table does not suit the volume that runs already. The text says why.
    Reload,
    /// The volume does not open.
    Open(OpenError),
}

impl Registry {
    /// No volume runs.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                volumes <- new_mutex!(Volumes {
                    entries: KVec::new(),
                    last_instance: 0,
                }),
            }),
            GFP_KERNEL,
        )
    }

    /// Finds the volume of `mapped_device`, which `check` has to agree with, or opens one.
    pub(super) fn attach(
        &self,
        mapped_device: MappedDevice,
        device_number: u32,
        check: impl FnOnce(&Running) -> bool,
        open: impl FnOnce(u32) -> core::result::Result<Arc<Running>, OpenError>,
    ) -> core::result::Result<Arc<Running>, AttachError> {
        let mut volumes = self.volumes.lock();
        if let Some(entry) = volumes
            .entries
            .iter_mut()
            .find(|entry| entry.mapped_device == mapped_device)
        {
            if !check(&entry.running) {
                return Err(AttachError::Reload);
            }
            entry.targets = entry.targets.saturating_add(1);
            return Ok(entry.running.clone());
        }
        if volumes
            .entries
            .iter()
            .any(|entry| entry.running.device_number() == device_number)
        {
            return Err(AttachError::Shared);
        }
        let no_memory = |_| AttachError::Open(OpenError::Kernel(ENOMEM));
        volumes.entries.reserve(1, GFP_KERNEL).map_err(no_memory)?;
        volumes.last_instance = volumes.last_instance.wrapping_add(1);
        let running = open(volumes.last_instance).map_err(AttachError::Open)?;
        let entry = Entry {
            mapped_device,
            running: running.clone(),
            targets: 1,
        };
        volumes.entries.push(entry, GFP_KERNEL).map_err(no_memory)?;
        Ok(running)
    }

    /// A target is gone; its volume is stopped if it was the last.
    pub(super) fn detach(&self, mapped_device: MappedDevice) {
        let mut volumes = self.volumes.lock();
        let Some(index) = volumes
            .entries
            .iter()
            .position(|entry| entry.mapped_device == mapped_device)
        else {
            return;
        };
        if let Some(entry) = volumes.entries.get_mut(index) {
            entry.targets = entry.targets.saturating_sub(1);
            if entry.targets > 0 {
                return;
            }
            entry.running.stop();
        }
        if volumes.entries.len() == 1 {
            // Gives the memory back: a module without volumes holds none.
            volumes.entries = KVec::new();
        } else {
            let _ = volumes.entries.remove(index);
        }
    }
}

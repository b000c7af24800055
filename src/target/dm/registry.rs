// SPDX-License-Identifier: GPL-2.0

//! The running volumes, by mapped device.
//!
//! Loading another table for a device makes a new target while the old one still runs: both refer to the same volume, which is
//! stopped when the last of them goes. Opening and stopping a volume may take long and are done without the registry's mutex:
//! meanwhile the volume's entry is there, but has no volume, and only those wait who want the same device.

use kernel::prelude::*;
use kernel::sync::{new_condvar, new_mutex, Arc, CondVar, Mutex};

use super::running::{OpenError, Running};
use crate::kapi::device_mapper::MappedDevice;

struct Entry {
    mapped_device: MappedDevice,
    device_number: u32,
    /// `None` while it is opened or stopped.
    running: Option<Arc<Running>>,
    /// Targets that refer to it.
    targets: usize,
}

struct Volumes {
    entries: KVec<Entry>,
    /// The number of the last volume that was opened.
    last_instance: u32,
}

impl Volumes {
    fn find(&mut self, mapped_device: MappedDevice) -> Option<&mut Entry> {
        self.entries
            .iter_mut()
            .find(|entry| entry.mapped_device == mapped_device)
    }

    /// Whether it is too early to say what a table for these devices means.
    fn in_transition(&self, mapped_device: MappedDevice, device_number: u32) -> bool {
        self.entries.iter().any(|entry| {
            entry.running.is_none()
                && (entry.mapped_device == mapped_device || entry.device_number == device_number)
        })
    }

    fn remove(&mut self, mapped_device: MappedDevice) {
        self.entries
            .retain(|entry| entry.mapped_device != mapped_device);
        if self.entries.is_empty() {
            // Gives the memory back: a module without volumes holds none.
            self.entries = KVec::new();
        }
    }
}

/// All running volumes of the module.
#[pin_data]
pub(crate) struct Registry {
    #[pin]
    volumes: Mutex<Volumes>,
    /// An entry has got its volume, or is gone.
    #[pin]
    changed: CondVar,
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
                changed <- new_condvar!(),
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
        let no_memory = |_| AttachError::Open(OpenError::Kernel(ENOMEM));
        let mut volumes = self.volumes.lock();
        while volumes.in_transition(mapped_device, device_number) {
            if self.changed.wait_interruptible(&mut volumes) {
                return Err(AttachError::Open(OpenError::Kernel(EINTR)));
            }
        }
        if let Some(entry) = volumes.find(mapped_device) {
            if let Some(running) = entry.running.clone() {
                entry.targets = entry.targets.saturating_add(1);
                drop(volumes);
                if check(&running) {
                    return Ok(running);
                }
                self.detach(mapped_device);
                return Err(AttachError::Reload);
            }
        }
        if volumes
            .entries
            .iter()
            .any(|entry| entry.device_number == device_number)
        {
            return Err(AttachError::Shared);
        }
        let entry = Entry {
            mapped_device,
            device_number,
            running: None,
            targets: 1,
        };
        volumes.entries.push(entry, GFP_KERNEL).map_err(no_memory)?;
        volumes.last_instance = volumes.last_instance.wrapping_add(1);
        let instance = volumes.last_instance;
        drop(volumes);
        let opened = open(instance);
        let mut volumes = self.volumes.lock();
        match &opened {
            Ok(running) => {
                if let Some(entry) = volumes.find(mapped_device) {
                    entry.running = Some(running.clone());
                }
            }
            Err(_) => volumes.remove(mapped_device),
        }
        self.changed.notify_all();
        opened.map_err(AttachError::Open)
    }

    /// A target is gone; its volume is stopped if it was the last.
    pub(super) fn detach(&self, mapped_device: MappedDevice) {
        let mut volumes = self.volumes.lock();
        let Some(entry) = volumes.find(mapped_device) else {
            return;
        };
        entry.targets = entry.targets.saturating_sub(1);
        if entry.targets > 0 {
            return;
        }
        let running = entry.running.take();
        drop(volumes);
        if let Some(running) = running {
            running.stop();
        }
        let mut volumes = self.volumes.lock();
        volumes.remove(mapped_device);
        self.changed.notify_all();
    }
}

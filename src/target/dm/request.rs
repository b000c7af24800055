// SPDX-License-Identifier: GPL-2.0

//! A bio as the engine sees it.

use crate::engine::env::{Intake, Operation, RequestError, UserRequest};
use crate::kapi::bio::{self, BlockStatus, OwnedBio};
use crate::kapi::bio_queue::BioQueue;
use crate::rt::AllocError;
use crate::target::errno;

/// A bio that the volume has to end.
pub(super) struct BioRequest {
    bio: OwnedBio,
    operation: Operation,
    /// The first sector of the target in its mapped device.
    begin: u64,
}

impl BioRequest {
    /// What `bio` asks for, if the volume can do it.
    pub(super) fn operation_of(bio: &OwnedBio) -> Option<Operation> {
        match bio.operation() {
            bio::Operation::Read => Some(Operation::Read),
            // Device-mapper sends flushes without data.
            bio::Operation::Write if bio.bytes() == 0 && bio.preflush() => Some(Operation::Flush),
            bio::Operation::Write => Some(Operation::Write),
            bio::Operation::Discard => Some(Operation::Discard),
            _ => None,
        }
    }
}

impl UserRequest for BioRequest {
    fn operation(&self) -> Operation {
        self.operation
    }

    fn sector(&self) -> u64 {
        self.bio.sector().saturating_sub(self.begin)
    }

    fn bytes(&self) -> usize {
        self.bio.bytes()
    }

    fn fua(&self) -> bool {
        self.bio.fua()
    }

    fn copy_from_user(&self, dst: &mut [u8]) {
        self.bio.copy_out(0, dst);
    }

    fn copy_to_user(&mut self, src: &[u8]) {
        self.bio.copy_in(0, src);
    }

    fn complete(self, result: Result<(), RequestError>) {
        self.bio.complete(match errno::BlockStatus::from(result) {
            errno::BlockStatus::Ok => BlockStatus::OK,
            errno::BlockStatus::NoSpace => BlockStatus::NO_SPACE,
            errno::BlockStatus::IoError => BlockStatus::IO_ERROR,
        });
    }
}

/// The queue between device-mapper and the volume's request tasks.
pub(super) struct BioIntake {
    queue: BioQueue,
    begin: u64,
}

impl BioIntake {
    /// An empty queue for a target that starts at sector `begin` of its mapped device.
    pub(super) fn new(begin: u64) -> Result<Self, AllocError> {
        Ok(Self {
            queue: BioQueue::new()?,
            begin,
        })
    }

    /// Takes bios again, for the volume that follows one that has stopped.
    pub(super) fn reopen(&self) {
        self.queue.reopen();
    }

    /// Hands a bio to the volume, which ends it. After the volume has stopped it fails at once.
    pub(super) fn push(&self, bio: OwnedBio) {
        if let Err(bio) = self.queue.push(bio) {
            bio.complete(BlockStatus::IO_ERROR);
        }
    }
}

impl Intake for BioIntake {
    type Request = BioRequest;

    async fn next(&self) -> Option<BioRequest> {
        loop {
            let bio = self.queue.next().await?;
            match BioRequest::operation_of(&bio) {
                Some(operation) => {
                    return Some(BioRequest {
                        bio,
                        operation,
                        begin: self.begin,
                    })
                }
                // Not queued by `map`; answered all the same.
                None => bio.complete(BlockStatus::NOT_SUPPORTED),
            }
        }
    }

    fn close(&self) {
        self.queue.close();
    }
}

// SPDX-License-Identifier: GPL-2.0

//! The world of one simulated volume.

use std::future::Future;

use super::codec::SimCodec;
use super::disk::Disk;
use super::executor::Clock;
use super::request::{SimIntake, SimRequest};
use crate::engine::env::Env;
use crate::rt::AllocError;

/// Everything a volume runs on. A clone is the same world.
#[derive(Clone)]
pub struct SimEnv {
    /// Where tasks run.
    pub clock: Clock,
    /// The disk underneath.
    pub disk: Disk,
    /// The compressor.
    pub codec: SimCodec,
    /// The requests.
    pub intake: SimIntake,
}

impl Env for SimEnv {
    type Device = Disk;
    type Codec = SimCodec;
    type Request = SimRequest;
    type Intake = SimIntake;

    fn device(&self) -> &Disk {
        &self.disk
    }

    fn codec(&self) -> &SimCodec {
        &self.codec
    }

    fn intake(&self) -> &SimIntake {
        &self.intake
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> Result<(), AllocError> {
        self.clock.spawn(task);
        Ok(())
    }
}

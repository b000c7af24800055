// SPDX-License-Identifier: GPL-2.0

//! Audits volumes in files or on devices: `audit IMAGE...`. Reads only.

use std::process::ExitCode;

use rvdo_host::sim::audit::{audit, Strictness};
use rvdo_host::sim::image::ImageFile;

fn main() -> ExitCode {
    let mut failed = false;
    for path in std::env::args().skip(1) {
        let result = ImageFile::open(&path)
            .map_err(|error| error.to_string())
            .and_then(|image| {
                let audit = audit(&image, Strictness::FORMAT)?;
                Ok(format!(
                    "state {}, {} blocks mapped, {} map pages, {} of {} data blocks used, {} entries replayed",
                    audit.volume.state,
                    audit.forest.used(),
                    audit.forest.pages,
                    audit.allocated,
                    audit.volume.slabs * audit.volume.data_blocks,
                    audit.replayed
                ))
            });
        match result {
            Ok(summary) => println!("{path}: sound: {summary}"),
            Err(findings) => {
                failed = true;
                println!("{path}: UNSOUND\n{findings}");
            }
        }
    }
    ExitCode::from(u8::from(failed))
}

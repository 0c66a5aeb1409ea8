//! NVIDIA's XID errors in words: what a number means and what to do.
//!
//! Source: NVIDIA's «Xid catalog» (<https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html>), with the names of
//! the driver's `nverror.h`. Severity follows the catalogue's immediate action: what asks for a reset, a reboot or service
//! is to be acted on; what asks for a restart of the program, or for nothing, is worth a look.

use serde::{Deserialize, Serialize};

use super::health::Severity;

/// The number of a GPU that has fallen off the bus.
pub const OFF_THE_BUS: u32 = 79;

/// A kind of XID error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Xid {
    /// NVIDIA's number.
    pub number: u32,
    /// What has happened.
    pub meaning: &'static str,
    /// What to do.
    pub remedy: &'static str,
    /// How bad it is.
    pub severity: Severity,
}

const APP: &str =
    "an error of the program: run it under compute-sanitizer; if other programs fail too, suspect the GPU";
const RESET: &str =
    "stop the programs on this GPU and reset it: nvidia-smi --gpu-reset; if it comes back, contact support";
const FOLLOW: &str = "follows from another error: look at the XID before it, or at what stopped the program";
const LINK: &str = "reset the GPUs of this host; if it comes back, have NVLink bridges and switches checked";
const REBOOT: &str = "reboot the host; if it comes back, have power, seating and the GPU checked";

const fn look(number: u32, meaning: &'static str, remedy: &'static str) -> Xid {
    Xid { number, meaning, remedy, severity: Severity::Look }
}

const fn act(number: u32, meaning: &'static str, remedy: &'static str) -> Xid {
    Xid { number, meaning, remedy, severity: Severity::Act }
}

/// The kinds that have words here, by number.
const KNOWN: [Xid; 43] = [
    look(8, "a kernel did not end in time", "restart the program; if it comes back, contact support"),
    look(11, "invalid or corrupted push buffer", APP),
    look(13, "exception in a kernel, such as an illegal address or instruction", APP),
    look(31, "page fault: a program accessed an address that is not mapped", APP),
    look(32, "invalid or corrupted push buffer", APP),
    look(38, "firmware of the driver did not answer in time", "contact support if it comes back"),
    look(43, "a program's work was stopped after an error of its own; the GPU is well", APP),
    look(44, "fault while the GPU switched between programs", "contact support if it comes back"),
    look(45, "a program's work was removed", FOLLOW),
    act(46, "the GPU stopped processing", RESET),
    act(48, "double-bit ECC error: memory lost data", RESET),
    act(54, "auxiliary power is not connected", "have the power cables of the GPU checked"),
    act(61, "internal microcontroller breakpoint", RESET),
    act(62, "internal microcontroller halted", RESET),
    look(
        63,
        "a page was retired or a row remapped",
        "reset the GPU or reboot the host when it is free, so that it takes effect",
    ),
    act(64, "a page could not be retired or a row not remapped", RESET),
    look(68, "exception in the video decoder", "restart the program; if it comes back, contact support"),
    look(69, "exception in the graphics engine's class", APP),
    act(74, "NVLink error", LINK),
    act(79, "the GPU has fallen off the bus", REBOOT),
    look(92, "many single-bit ECC errors, all corrected", "have the GPU checked at the next occasion"),
    look(
        94,
        "ECC error that is contained: only the program that met it is affected",
        "restart the program; reset the GPU when it is free",
    ),
    act(95, "ECC error that is not contained: every program on the GPU may be affected", RESET),
    act(109, "the GPU did not switch between programs in time", RESET),
    act(110, "security fault", RESET),
    act(119, "the GPU's system processor (GSP) did not answer in time", RESET),
    act(120, "error in the GPU's system processor (GSP)", RESET),
    look(121, "error on the chip-to-chip link, corrected", "have the GPU checked at the next occasion"),
    act(136, "NVLink training failed", LINK),
    look(
        137,
        "a program was denied access over NVLink",
        "look at the program and at the XIDs of the other GPUs",
    ),
    act(140, "ECC error that could not be corrected", RESET),
    look(141, "error in the fast path of a channel", "contact support if it comes back"),
    act(143, "the GPU could not be initialised", RESET),
    act(144, "NVLink error (SAW)", LINK),
    act(145, "NVLink error (RLW)", LINK),
    act(146, "NVLink error (TLW)", LINK),
    act(149, "NVLink error (NETIR)", LINK),
    act(150, "NVLink error (MSE)", LINK),
    look(154, "the driver changed its advice how to recover", "see «Recovery Action» in nvidia-smi -q"),
    act(155, "NVLink went down", LINK),
    act(156, "a resource was retired", RESET),
    look(157, "a resource could not be retired", "contact support"),
    act(158, "the GPU met a fatal timeout", RESET),
];

/// What XID `number` means; for a number without words here, where to look it up.
pub fn explain(number: u32) -> Xid {
    let at = KNOWN.binary_search_by_key(&number, |xid| xid.number);
    at.ok().and_then(|at| KNOWN.get(at)).copied().unwrap_or(look(
        number,
        "an error that NVIDIA's driver reports",
        "look the number up in NVIDIA's Xid catalog",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_sorted_so_that_each_is_found() {
        assert!(KNOWN.is_sorted_by(|one, next| one.number < next.number));
        for xid in KNOWN {
            assert_eq!(explain(xid.number), xid);
        }
    }

    #[test]
    fn a_lost_gpu_is_acted_on_and_an_error_of_a_program_looked_at() {
        for number in [48, 62, 64, 74, 79, 95, 119, 120, 140, 143] {
            assert_eq!(explain(number).severity, Severity::Act, "{number}");
        }
        for number in [13, 31, 43, 45, 63, 92, 94, 121] {
            assert_eq!(explain(number).severity, Severity::Look, "{number}");
        }
        assert!(explain(79).meaning.contains("fallen off the bus"));
        let new = explain(9999);
        assert_eq!((new.number, new.severity), (9999, Severity::Look));
        assert!(new.remedy.contains("catalog"));
    }
}

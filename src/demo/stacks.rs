//! The stack of a rank of a demo's run, as Python's `faulthandler` would write it: invented, and that of the phase it is in. Pure.

use std::fmt::Write as _;

use crate::domain::timing::Phase;

/// Where the packages lie that the script imports.
const PACKAGES: &str = "/usr/lib/python3/dist-packages";
/// A file of the script itself, in [`calls`].
const SCRIPT: &str = "";

/// The thread beside the main one: it hands batches to the GPU.
const BESIDE: [(&str, u32, &str); 2] = [
    ("torch/utils/data/_utils/pin_memory.py", 35, "do_one_step"),
    ("torch/utils/data/_utils/pin_memory.py", 59, "_pin_memory_loop"),
];

/// File, line and function of the calls of a phase, the innermost first.
fn calls(phase: Phase) -> &'static [(&'static str, u32, &'static str)] {
    match phase {
        Phase::Data => &[
            (SCRIPT, 41, "read_sample"),
            (SCRIPT, 58, "__getitem__"),
            ("torch/utils/data/_utils/fetch.py", 54, "fetch"),
            ("torch/utils/data/dataloader.py", 789, "_next_data"),
            ("torch/utils/data/dataloader.py", 733, "__next__"),
            (SCRIPT, 112, "main"),
        ],
        Phase::Forward => &[
            ("torch/nn/modules/linear.py", 134, "forward"),
            ("torch/nn/modules/module.py", 1786, "_call_impl"),
            (SCRIPT, 118, "main"),
        ],
        Phase::Backward => &[
            ("torch/autograd/graph.py", 841, "_engine_run_backward"),
            ("torch/_tensor.py", 647, "backward"),
            (SCRIPT, 119, "main"),
        ],
        Phase::Wait | Phase::Transfer => &[
            ("torch/distributed/distributed_c10d.py", 2935, "all_reduce"),
            ("torch/distributed/c10d_logger.py", 81, "wrapper"),
            (SCRIPT, 87, "average_gradients"),
            (SCRIPT, 120, "main"),
        ],
        Phase::Optimizer => &[
            ("torch/optim/adamw.py", 243, "step"),
            ("torch/optim/optimizer.py", 516, "wrapper"),
            (SCRIPT, 121, "main"),
        ],
        Phase::Other => {
            &[("torch/distributed/distributed_c10d.py", 1774, "init_process_group"), (SCRIPT, 98, "main")]
        }
    }
}

/// The stacks of a process that runs `script`, the main thread last.
pub(super) fn text(script: &str, phase: Phase) -> String {
    let script = if script.starts_with('/') { script.to_owned() } else { format!("/home/you/{script}") };
    let mut text = String::new();
    let mut thread = |head: &str, calls: &[(&str, u32, &str)]| {
        // writing to a text does not fail
        let _ = writeln!(text, "{head} (most recent call first):");
        for (file, line, function) in calls {
            let file = if *file == SCRIPT { script.clone() } else { format!("{PACKAGES}/{file}") };
            let _ = writeln!(text, "  File \"{file}\", line {line} in {function}");
        }
    };
    thread("Thread 0x00007f51b3fff6c0", &BESIDE);
    let main: Vec<_> = calls(phase).iter().copied().chain([(SCRIPT, 134, "<module>")]).collect();
    thread("Current thread 0x00007f51c4dff740", &main);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::stacks::{script_line, threads};

    #[test]
    fn a_stack_is_read_as_one_of_python_is() {
        for phase in Phase::ALL {
            let found = threads(&text("src/sft.py", phase));
            assert_eq!((found.len(), found[0].name.as_str()), (2, "main"), "{found:?}");
            let outermost = found[0].frames.last().unwrap();
            assert_eq!((outermost.function.as_str(), outermost.file.as_str()), ("<module>", "sft.py"));
            assert!(script_line(&found[0]).is_some_and(|line| line.file == "sft.py"), "{found:?}");
        }
        let functions = |phase| -> Vec<String> {
            let main = threads(&text("src/sft.py", phase)).swap_remove(0);
            main.frames.into_iter().map(|frame| frame.function).collect()
        };
        assert_eq!(functions(Phase::Wait)[..3], ["all_reduce", "wrapper", "average_gradients"]);
        assert_eq!(functions(Phase::Data)[3], "_next_data");
    }
}

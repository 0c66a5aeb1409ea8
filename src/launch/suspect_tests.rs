//! Scripts as they are written, and the kinds that they are started with by mistake.

use super::*;
use crate::domain::run::JobKind;
use proptest::prelude::*;

const HOROVOD: &str = "import tensorflow as tf\nimport horovod.tensorflow.keras as hvd\n\nhvd.init()\n";
const DDP: &str = "import os\nimport torch.distributed as dist\n\ndef main():\n    dist.init_process_group('nccl')\n    r = int(os.environ[\"LOCAL_RANK\"])\n";
const KERAS: &str = "import json, os\nimport tensorflow as tf\nconfig = json.loads(os.environ['TF_CONFIG'])\nstrategy = tf.distribute.MultiWorkerMirroredStrategy()\n";
const MPI: &str = "from mpi4py import MPI\ncomm = MPI.COMM_WORLD\n";

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

#[test]
fn a_script_that_starts_its_ranks_itself_is_one_rank() {
    let command = words("python train.py");
    let spawning = [
        "import torch.multiprocessing as mp\nmp.spawn(main, nprocs=2)\n",
        "import torch\ntorch.multiprocessing.spawn(main, args=(2,), nprocs=2)\n",
        "from torch.multiprocessing import spawn\nspawn(main, nprocs=2)\n",
    ];
    for script in spawning {
        let said = suspect(script, &command, (JobKind::Plain, StartedBy::Us), (2, 2)).unwrap();
        assert!(said.starts_with("train.py calls torch.multiprocessing.spawn: unless"), "{said}");
        assert!(said.contains("--nproc-per-node 1 --gpus-per-rank N"), "{said}");
        assert!(suspect(script, &command, (JobKind::Torch, StartedBy::Us), (4, 4)).is_some());
        assert_eq!(suspect(script, &command, (JobKind::Plain, StartedBy::Us), (1, 1)), None, "{script}");
        let one_a_host = suspect(script, &command, (JobKind::Plain, StartedBy::Us), (2, 1));
        assert_eq!(one_a_host, None, "what was advised is not warned of: {script}");
    }
    for script in [
        "import torch\ngame.spawn(1)\n",
        "import multiprocessing as mp\nmp.spawn(x)\n",
        "import torch\n# mp.spawn(x)\n",
    ] {
        assert_eq!(suspect(script, &command, (JobKind::Plain, StartedBy::Us), (2, 2)), None, "{script}");
    }
}

#[test]
fn a_shell_script_that_starts_a_launcher_is_told() {
    for (script, launcher) in [
        ("#!/bin/bash\nset -e\nA=1 torchrun --nproc_per_node=2 t.py\n", "torchrun"),
        ("cd x && mpirun.openmpi -np 2 ./a", "mpirun.openmpi"),
        ("if true; then\n  exec horovodrun -np 2 python t.py\nfi\n", "horovodrun"),
        ("accelerate launch t.py", "accelerate"),
        ("deepspeed t.py", "deepspeed"),
        ("srun ./a", "srun"),
        ("python3 -m torch.distributed.run t.py", "torch.distributed.run"),
        ("timeout 1h uv run torchrun t.py", "torchrun"),
        ("time -p A=1 srun ./a", "srun"),
        ("exec nohup env A=b nice -n 10 srun ./a", "srun"),
    ] {
        let said = starts_ranks(script, "./train.sh").unwrap_or_default();
        assert!(
            said.starts_with(&format!("train.sh starts `{launcher}`, which starts ranks")),
            "{script}: {said}"
        );
    }
    for script in
        ["# torchrun t.py", "python3 t.py", "echo torchrun", "accelerate config", "pip install deepspeed", ""]
    {
        assert_eq!(starts_ranks(script, "train.sh"), None, "{script}");
    }
}

#[test]
fn a_script_tells_its_kind() {
    for (text, kind) in [
        (HOROVOD, Some(JobKind::Horovod)),
        (DDP, Some(JobKind::Torch)),
        (KERAS, Some(JobKind::Tensorflow)),
        (MPI, Some(JobKind::Mpi)),
        ("import torch\nr = os.environ.get('LOCAL_RANK', 0)\n", Some(JobKind::Torch)),
        ("try: import horovod.torch as hvd\nexcept ImportError: hvd = None\n", Some(JobKind::Horovod)),
        ("import os, sys, mpi4py.MPI\n", Some(JobKind::Mpi)),
        ("import lightning as L\ntrainer = L.Trainer(devices=2)\n", Some(JobKind::Torch)),
        ("from pytorch_lightning import LightningModule\n", None),
        ("from accelerate import Accelerator\n", Some(JobKind::Torch)),
        ("strategy = tf.distribute.experimental.MultiWorkerMirroredStrategy()\n", Some(JobKind::Tensorflow)),
        (
            "from torch.distributed import (\n  init_process_group,\n)\ninit_process_group(\n'gloo')\n",
            Some(JobKind::Torch),
        ),
        // hvtui sets LOCAL_RANK for each kind, so that alone says nothing
        ("import os\nprint(os.environ['LOCAL_RANK'])\n", None),
        ("import torch\nprint(torch.cuda.device_count())\n", None),
        ("print('hello')\n", None),
        ("", None),
    ] {
        assert_eq!(kind_of_script(text), kind, "{text}");
    }
}

#[test]
fn comments_strings_and_own_functions_tell_nothing() {
    for text in [
        "# import horovod\nx = 1  # hvd.init()\n",
        "\"\"\"Run with\nimport horovod.torch as hvd\nhvd.init()\n\"\"\"\n",
        "help = 'import horovod'\nprint(\"dist.init_process_group('nccl')\")\n",
        "doc = r'''\\'''\nimport horovod\n'''\n",
        "s = 'it\\'s'\nt = \"# \"\nprint(f'''\nfrom mpi4py import MPI\n''')\n",
        "names = ['LOCAL_RANK', 'TF_CONFIG']\n",
        "def init_process_group(x):\n    pass\ninit_process_group(1)\n",
        "import horovodish\nfrom nothorovod import horovod_like\n",
        "x = import_horovod\n",
        // it makes its own cluster, so that it needs none
        "os.environ['TF_CONFIG'] = json.dumps(c)\ntf.distribute.MultiWorkerMirroredStrategy()\n",
    ] {
        assert_eq!(kind_of_script(text), None, "{text}");
    }
    assert_eq!(kind_of_script("if os.environ['TF_CONFIG'] == '':\n  pass\n"), Some(JobKind::Tensorflow));
    assert_eq!(kind_of_script("s = '''\n'''\nimport horovod\n"), Some(JobKind::Horovod));
    assert_eq!(kind_of_script("s = 'open\nimport horovod\n"), Some(JobKind::Horovod));
}

#[test]
fn the_wrong_kind_is_named_with_the_right_one() {
    let command = words("python -u src/train.py --lr 1");
    assert_eq!(
        suspect(HOROVOD, &command, (JobKind::Plain, StartedBy::Us), (2, 2)).unwrap(),
        "train.py imports horovod, and `--kind plain` does not connect its ranks: 2 trainings of «rank 0 of 1» \
         would run beside each other; `--kind horovod` is meant"
    );
    for (text, kind, meant) in [
        (DDP, JobKind::Plain, None),
        (KERAS, JobKind::Torch, Some("`--kind tensorflow` is meant")),
        (MPI, JobKind::Plain, Some("`--kind mpi` is meant")),
        (HOROVOD, JobKind::Torch, Some("`--kind horovod` is meant")),
        // every rank has what `env://` asks for
        (DDP, JobKind::Mpi, None),
        (DDP, JobKind::Horovod, None),
        (DDP, JobKind::Tensorflow, None),
        (HOROVOD, JobKind::Horovod, None),
        (HOROVOD, JobKind::Mpi, None),
        (MPI, JobKind::Slurm, None),
        (DDP, JobKind::Torch, None),
    ] {
        let warning = suspect(text, &command, (kind, StartedBy::Us), (4, 4));
        assert_eq!(warning.is_some(), meant.is_some(), "{text}");
        assert!(warning.unwrap_or_default().contains(meant.unwrap_or_default()), "{text}");
    }
    let by_line = suspect(DDP, &command, (JobKind::Mpi, StartedBy::Line), (2, 2)).unwrap_or_default();
    assert!(
        by_line.contains("`--kind mpi` does not connect its ranks"),
        "mpirun's ranks have its variables alone: {by_line}"
    );
    assert_eq!(suspect(HOROVOD, &command, (JobKind::Plain, StartedBy::Us), (1, 1)), None);
    // a script for several launchers is right with each of them
    assert_eq!(suspect(&format!("{HOROVOD}{DDP}"), &command, (JobKind::Torch, StartedBy::Us), (2, 2)), None);
    assert!(
        suspect(MPI, &[], (JobKind::Plain, StartedBy::Us), (2, 2))
            .unwrap()
            .starts_with("the script imports mpi4py")
    );
}

#[test]
fn only_the_beginning_of_a_long_script_is_looked_at() {
    let long = format!("x = 'é'\n{}{HOROVOD}", "é = 1\n".repeat(MOST / 6));
    assert_eq!(kind_of_script(&long), None);
}

proptest! {
    #[test]
    fn nothing_panics(text in "[a-z '\"#\\\\\n(\\[é=:,.]{0,60}") {
        let _ = kind_of_script(&text);
    }
}

use super::*;
use crate::doctor::tests::seen;
use crate::domain::preflight::Mark;

#[test]
fn what_a_script_imports_is_read_from_its_lines() {
    let script = "import os, torch as t\nfrom horovod import tensorflow as hvd\n# import jax\nimport numpy.linalg\n\
                  from keras.layers import Dense\nimport torchvision\nif tf:\n    import tensorflow\ntry:\n\timport apex\n";
    for module in ["torch", "horovod.tensorflow", "numpy", "keras", "os", "horovod", "torchvision"] {
        assert!(imports(script, module), "{module}");
    }
    for module in ["jax", "tensorflow", "horovod.torch", "num", "torchvis", "apex"] {
        assert!(!imports(script, module), "{module}");
    }
}

#[test]
fn a_module_is_read_where_python_looks_first() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("train/eval")).unwrap();
    std::fs::write(folder.path().join("train/main.py"), "import torch\n").unwrap();
    std::fs::write(folder.path().join("train/eval/__main__.py"), "import jax\n").unwrap();
    assert_eq!(of_module(folder.path(), "train.main"), ["import torch\n"]);
    assert_eq!(of_module(folder.path(), "train.eval"), ["import jax\n"]);
    for none in ["torch.distributed.run", "../train.main", "train..main", ""] {
        assert_eq!(of_module(folder.path(), none), [""; 0], "{none}");
    }
    // the packages around it run first
    std::fs::write(folder.path().join("train/__init__.py"), "import sys\n").unwrap();
    assert_eq!(of_module(folder.path(), "train.main"), ["import sys\n", "import torch\n"]);
}

#[test]
fn what_is_surely_imported_depends_on_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let write = |text: &str| std::fs::write(folder.path().join("train.py"), text).unwrap();
    let modules = ["torch", "horovod.torch", "horovod.keras"].map(str::to_owned);
    let file = Started { script: Some("train.py".to_owned()), ..Started::default() };
    let sure = |starts: &Started| {
        let sure = surely(&modules, &texts(starts, folder.path()));
        sure.into_iter().collect::<Vec<_>>().join(" ")
    };
    write("import torch\nimport horovod.torch as hvd\n");
    assert_eq!(sure(&file), "horovod torch");
    for led in [
        "import sys\nsys.path.insert(0, '/x')\nimport torch\n",
        "import os\nos.system('pip install torch')\nimport torch\n",
        "try:\n    import torch\nexcept ImportError:\n    pass\n",
        "\"\"\"How to\nimport torch\n\"\"\"\n",
        "'''How \"\"\" to\nimport torch\n'''\n",
        "text = \"\"\"it's # no\nimport torch\n\"\"\"\n",
        "",
    ] {
        write(led);
        assert_eq!(sure(&file), "", "{led}");
    }
    // what only looks like the beginning of a text hides nothing
    for plain in ["# a \"\"\" b\nimport torch # '''c\n", "x = '\\'\"\"\"'\nimport torch\n"] {
        write(plain);
        assert_eq!(sure(&file), "torch", "{plain}");
    }
    // the lines that are told of a script that is copied say the same
    for script in ["'''\nimport torch\n'''\nx = 1\n", "run('pip install torch')\nimport torch\n"] {
        let told: Vec<&str> = script.lines().filter(|line| decides_imports(line)).collect();
        assert!(surely(&modules, &[told.join("\n")]).is_empty(), "{told:?}");
    }
    write("import torch\n");
    let module = Started { script: None, module: Some("train".to_owned()), ..file };
    assert_eq!(sure(&module), "torch");
    assert_eq!(sure(&Started { module: Some("none".to_owned()), ..module }), "");
    assert_eq!(sure(&Started::default()), "");
}

#[test]
fn the_python_of_a_program_is_what_executes_it() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        use std::os::unix::fs::PermissionsExt;
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        path
    };
    let own = write("python3", "#!/bin/sh\n");
    write("torchrun", "#!/opt/conda/bin/python3.11\nimport sys\n");
    write("horovodrun", "#!/usr/bin/env python3\n");
    write("train", "#!/bin/sh\n");
    let of = |program: &str| python(program, folder.path(), Some(folder.path().as_os_str()));
    assert_eq!(of("python3").unwrap(), own);
    assert_eq!(of("./python3").unwrap(), folder.path().join("./python3"), "of the run's folder");
    assert_eq!(of("torchrun").unwrap(), Path::new("/opt/conda/bin/python3.11"));
    assert_eq!(of("horovodrun").unwrap(), own);
    assert!(of("train").unwrap_err().ends_with("train is no program of Python's"));
    assert_eq!(of("accelerate").unwrap_err(), "no accelerate on the PATH of the run");
}

#[test]
fn a_fault_is_red_and_what_is_not_known_is_not() {
    let one = || Tried {
        module: "torch".to_owned(),
        python: "/usr/bin/python3".to_owned(),
        version: Some("2.4.0".to_owned()),
        within_ms: 3700,
        ..Tried::default()
    };
    assert_eq!(judge(&[one()], true).evidence, "/usr/bin/python3 imports torch 2.4.0");
    let words = "ImportError: /x/_C.so: undefined symbol: _ZN2at4_opsEv";
    let fault = judge(&[Tried { fault: Some(words.to_owned()), ..one() }], true);
    assert_eq!((fault.mark, fault.for_launch()), (Mark::Bad, Mark::Bad));
    assert!(fault.evidence.ends_with(words) && fault.cause.unwrap().contains("another torch"));
    let led = judge(&[Tried { fault: Some(words.to_owned()), is_led: true, ..one() }], true);
    assert_eq!((led.mark, led.for_launch()), (Mark::Bad, Mark::Look));
    let late = judge(&[Tried { is_late: true, ..one() }], true);
    assert!(late.mark == Mark::Unknown && late.evidence.contains("in 3.7 s: a file system"), "{late:?}");
    let given_up = judge(&[Tried { is_late: true, is_given_up: true, ..one() }], true);
    assert!(given_up.evidence.contains("in 3.7 s twice; for a day launches try it no more"), "{given_up:?}");
    assert_eq!(judge(&[], true).mark, Mark::Unknown);
    let train = Environment { folder: "/opt/conda/envs/train".to_owned(), conda: true };
    let absent = |module: &str, elsewhere: &[Environment]| Tried {
        module: module.to_owned(),
        absent: Some(elsewhere.to_vec()),
        ..one()
    };
    let none = judge(&[absent("torch", &[train]), absent("tensorflow", &[])], true);
    let words = "/usr/bin/python3, the first on the PATH of commands over ssh, has no torch and no tensorflow; of a run, \
                 --conda /opt/conda/envs/train has torch";
    assert_eq!((none.mark, none.evidence.as_str()), (Mark::Unknown, words));
    let nowhere = judge(&[absent("torch", &[])], true);
    assert!(nowhere.evidence.ends_with("has no torch"), "{nowhere:?}");
    let warned = judge(
        &[Tried {
            warning: Some("CUDA initialization: The NVIDIA driver on your system is too old".to_owned()),
            ..one()
        }],
        true,
    );
    assert_eq!((warned.mark, warned.for_launch()), (Mark::Bad, Mark::Look));
    let without = |has_gpus, wants_nccl| judge(&[Tried { nccl: Some(false), wants_nccl, ..one() }], has_gpus);
    let evidence = "torch 2.4.0 of /usr/bin/python3 is built without NCCL";
    assert_eq!((without(true, false).mark, without(true, false).evidence.as_str()), (Mark::Look, evidence));
    assert_eq!((without(true, true).stops_launch(), without(false, true).mark), (true, Mark::Good));
}

#[test]
fn what_hosts_have_imported_is_compared_where_nothing_else_is_wrong() {
    let one = |version: &str| Tried {
        module: "torch".to_owned(),
        python: "/opt/conda/envs/train/bin/python3".to_owned(),
        version: Some(version.to_owned()),
        versions: BTreeMap::from([("torch".to_owned(), version.to_owned())]),
        ..Tried::default()
    };
    let last = |tried| Import::judge(&seen([vec![one("2.4.0")], vec![one("2.4.0")], vec![tried]])).remove(2);
    assert_eq!(last(one("2.4.0")).mark, Mark::Good);
    let unlike = last(one("2.3.1"));
    let words = "/opt/conda/envs/train/bin/python3: torch 2.3.1 (other hosts have 2.4.0)";
    assert_eq!((unlike.mark, unlike.evidence.as_str()), (Mark::Bad, words));
    let fault = Some("ImportError: libmpi.so.40: cannot open shared object file".to_owned());
    assert!(last(Tried { fault, ..one("2.3.1") }).stops_launch());
    let warning = Some("NVIDIA RTX 5090 with CUDA capability sm_120 is not compatible".to_owned());
    let warned = last(Tried { warning, ..one("2.3.1") });
    assert_eq!((warned.mark, warned.for_launch()), (Mark::Bad, Mark::Look));
    assert!(warned.remedy.unwrap().contains("CUDA 12.8 or later"));
}

#[test]
fn the_systems_python_with_its_mark_takes_no_packages() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["usr/bin", "usr/lib/python3.12", "venv/bin"] {
        std::fs::create_dir_all(at(name)).unwrap();
    }
    std::fs::write(at("usr/bin/python3.12"), "").unwrap();
    std::os::unix::fs::symlink("python3.12", at("usr/bin/python3")).unwrap();
    std::os::unix::fs::symlink(at("usr/bin/python3"), at("venv/bin/python3")).unwrap();
    std::fs::write(at("venv/pyvenv.cfg"), "").unwrap();
    assert!(!is_managed(&at("usr/bin/python3")), "without the mark");
    std::fs::write(at("usr/lib/python3.12/EXTERNALLY-MANAGED"), "").unwrap();
    assert!(is_managed(&at("usr/bin/python3")) && is_managed(&at("usr/bin/python3.12")));
    assert!(!is_managed(&at("venv/bin/python3")), "a venv's own");
    assert!(!is_managed(&at("usr/bin/python2")), "not there");
}

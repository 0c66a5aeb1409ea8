//! Imports that are tried, the toolkit's own way around an old driver, and what passes by name.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use super::alike::give_packages;
use super::{give_torch, json, verdict};
use crate::common::built;
use crate::common::client::Client;
use crate::common::cluster::{Cluster, skip};
use crate::common::in_time::StatusInTime;
use crate::common::processes::until_says;

/// A library from C, in the cluster's folder.
fn library(cluster: &Cluster, name: &str, code: &str, more: &[&str]) -> PathBuf {
    let (source, library) = (cluster.dir().join("source.c"), cluster.dir().join(name));
    std::fs::write(&source, code).expect("a source");
    let mut compile = Command::new("gcc");
    compile.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).args(more);
    assert!(compile.current_dir(cluster.dir()).status_in_time().expect("gcc").success(), "{name}");
    library
}

/// Gives a host a torch of its own, which loads this extension where there is one.
fn give_broken_torch(cluster: &Cluster, host: &str, extension: Option<&PathBuf>, init: &str) {
    give_torch(cluster, host, "2.4.0", "None");
    let copy = extension.map_or_else(String::new, |file| format!("cp {} $d/_C.so; ", file.display()));
    let line = format!(
        "for v in 9 10 11 12 13; do d=~/.local/lib/python3.$v/site-packages/torch; {copy}printf '{init}' > $d/__init__.py; done"
    );
    cluster.on(host, &line);
}

const GOOD: &str = "from . import version\\n__version__ = \"2.4.0\"\\n";

#[test]
fn an_import_that_fails_is_told_with_its_cause_and_keeps_a_run_from_starting() {
    let Some(cluster) = Cluster::ready(4, &[]) else { return };
    let client = Client::new(&cluster);
    let absent = "void *_ZN2at4_ops3addEv(void);\nvoid *PyInit__C(void) { return _ZN2at4_ops3addEv(); }\n";
    let symbol = library(&cluster, "symbol.so", absent, &[]);
    let runtime = library(
        &cluster,
        "libcudart.so.12",
        "int cudaRuntimeGetVersion(int *v) { return 0; }\n",
        &["-Wl,-soname,libcudart.so.12"],
    );
    let uses =
        "int cudaRuntimeGetVersion(int *);\nvoid *PyInit__C(void) { cudaRuntimeGetVersion(0); return 0; }\n";
    let linked = library(&cluster, "linked.so", uses, &["-L.", "-l:libcudart.so.12"]);
    std::fs::remove_file(runtime).expect("the library of CUDA goes");
    give_broken_torch(&cluster, "n1", None, GOOD);
    give_broken_torch(&cluster, "n2", Some(&symbol), "from . import _C\\n");
    give_broken_torch(&cluster, "n3", Some(&linked), "from . import _C\\n");
    give_broken_torch(&cluster, "n4", None, "import no_such_package\\n");
    let told = json(&client.run(&["doctor", "--json", "--only", "import"]));
    let good = verdict(&told, "import", "n1");
    assert_eq!(
        (&good["mark"], &good["evidence"]),
        (&"good".into(), &"/usr/bin/python3 imports torch 2.4.0".into()),
        "{told:#}"
    );
    for (host, words, cause, remedy) in [
        (
            "n2",
            "undefined symbol: _ZN2at4_ops3addEv",
            "was built against another torch",
            "--force-reinstall torch",
        ),
        (
            "n3",
            "libcudart.so.12: cannot open shared object file",
            "does not find libcudart.so.12",
            "nvidia-cuda-runtime-cu12",
        ),
        (
            "n4",
            "ModuleNotFoundError: No module named 'no_such_package'",
            "a package that it needs is not",
            "-m pip install no_such_package",
        ),
    ] {
        let one = verdict(&told, "import", host);
        let text = |name: &str| one[name].as_str().unwrap_or_default().to_owned();
        assert_eq!(text("mark"), "bad", "{host}: {told:#}");
        assert!(text("evidence").starts_with("/usr/bin/python3 can't import torch: "), "{one:#}");
        assert!(
            text("evidence").contains(words)
                && text("cause").contains(cause)
                && text("remedy").contains(remedy),
            "{one:#}"
        );
    }
    // unasked it is not made
    let all = json(&client.run(&["doctor", "--json", "-H", "n1"]));
    assert!(all["checks"].as_array().unwrap().iter().all(|row| row["check"] != "import"), "{all:#}");

    // a launch whose script imports it is told before its ranks are started
    for host in ["n1", "n2"] {
        cluster
            .on(host, "mkdir -p ~/t && printf 'import torch as t\\nprint(t.__version__)\\n' > ~/t/train.py");
    }
    let run = |host: &str, more: &[&str]| {
        let line = ["--workdir", "~/t", "--kind", "torch", "--", "python3", "train.py"];
        client.run(&[&["run", "-H", host], more, &line].concat())
    };
    let fine = run("n1:1", &[]);
    assert!(fine.code == 0 && fine.out.contains("2.4.0"), "{fine:?}");
    let refused = run("n2:1", &[]);
    assert!(refused.code == 78 && refused.err.contains("undefined symbol: _ZN2at4_ops3addEv"), "{refused:?}");
    assert_eq!(run("n2:1", &["--force"]).code, 1, "its ranks end as was said");
    also_where_the_script_is_in_the_command(&cluster, &client);
    also_where_the_script_is_copied_there(&client);
    // what has been seen to succeed is not tried again, until something of it changes
    let count = "find ~/.local/state/hvtui/imports -name '*.json' | wc -l";
    assert_eq!(cluster.on("n1", count).trim(), "1");
    give_broken_torch(&cluster, "n1", Some(&symbol), "from . import _C\\n");
    let changed = run("n1:1", &[]);
    assert!(changed.code == 78 && changed.err.contains("undefined symbol"), "{changed:?}");
    // and the Python that counts is the run's own
    cluster.on("n2", "python3 -m venv --without-pip ~/venv");
    let venv = run("n2:1", &["--venv", "~/venv"]);
    assert!(
        venv.code == 78 && venv.err.contains("/venv/bin/python3 can't import torch: ModuleNotFoundError"),
        "{venv:?}"
    );
}

/// Beside a host whose torch is as it should be, n2 has one that can't be imported.
fn also_where_the_script_is_in_the_command(cluster: &Cluster, client: &Client<'_>) {
    for host in ["n1", "n2"] {
        cluster.on(host, "mkdir -p ~/t/pkg && cp ~/t/train.py ~/t/pkg/main.py");
    }
    for words in [&["-c", "import torch; print(torch.__version__)"][..], &["-u", "-m", "pkg.main"]] {
        let run = |host: &str| {
            let line = ["run", "-H", host, "--workdir", "~/t", "--kind", "torch", "--", "python3"];
            client.run(&[&line[..], words].concat())
        };
        let fine = run("n1:1");
        assert!(fine.code == 0 && fine.out.contains("2.4.0"), "{fine:?}");
        let refused = run("n2:1");
        assert!(
            refused.code == 78 && refused.err.contains("undefined symbol: _ZN2at4_ops3addEv"),
            "{refused:?}"
        );
    }
}

/// The folder is on this machine alone, until the run has come to its hosts.
fn also_where_the_script_is_copied_there(client: &Client<'_>) {
    std::fs::create_dir_all(client.path("code/pkg")).expect("a folder");
    for file in ["code/train.py", "code/pkg/main.py"] {
        client.write(file, "import torch\nprint(torch.__version__)\n");
    }
    for words in [&["train.py"][..], &["-m", "pkg.main"]] {
        let run = |host: &str| {
            let line = ["run", "-H", host, "--sync", "code", "--kind", "torch", "--", "python3"];
            client.run(&[&line[..], words].concat())
        };
        let refused = run("n2:1");
        assert!(
            refused.code == 78 && refused.err.contains("undefined symbol: _ZN2at4_ops3addEv"),
            "{refused:?}"
        );
        let fine = run("n1:1");
        assert!(fine.code == 0 && fine.out.contains("2.4.0"), "{fine:?}");
    }
}

#[test]
fn a_python_without_a_framework_is_named_with_the_environment_that_has_one() {
    let Some(cluster) = Cluster::ready(1, &[]) else { return };
    let client = Client::new(&cluster);
    cluster.on("n1", "/usr/bin/python3 -m venv --without-pip ~/plain && mkdir -p ~/venvs/train/lib/python3.11/site-packages/torch");
    cluster.on("n1", "mkdir -p ~/venvs/train/bin && ln -s /usr/bin/python3 ~/venvs/train/bin/python3");
    cluster.change("sshd", "n1 SetEnv PATH=/root/plain/bin:/usr/local/bin:/usr/bin:/bin");
    let told = json(&client.run(&["doctor", "--json", "--only", "import", "-H", "n1"]));
    let none = verdict(&told, "import", "n1");
    let seen = "/root/plain/bin/python3, the first on the PATH of commands over ssh, has no torch and no tensorflow; of a run, --venv \
                /root/venvs/train has torch";
    assert_eq!((&none["mark"], &none["evidence"]), (&"unknown".into(), &seen.into()), "{told:#}");
}

#[test]
fn an_old_driver_is_told_with_the_library_that_serves_a_newer_cuda() {
    let scripts = tempfile::tempdir().unwrap();
    let gpus = serde_json::json!([{ "uuid": "GPU-00000000-0000-0000-0000-000000000001" }]);
    let script = serde_json::json!({ "gpus": gpus, "cuda": 11040 });
    for host in ["n1", "n2"] {
        std::fs::write(scripts.path().join(format!("{host}.json")), script.to_string()).unwrap();
    }
    let nvml = built::example("libfake_nvml.so");
    let fake: [&OsStr; 3] = ["--fake-nvml".as_ref(), nvml.as_ref(), scripts.path().as_ref()];
    let Some(cluster) = Cluster::ready(2, &fake) else { return };
    let client = Client::new(&cluster);
    client.write("hosts.toml", &cluster.hosts_toml(1).replace("slots = 1\n", ""));
    let code = "int cuInit(unsigned f) { return f ? 1 : 0; }\nint cuDriverGetVersion(int *v) { *v = 12040; return 0; }\n";
    let file = library(&cluster, "libcuda.so.1", code, &[]);
    for host in ["n1", "n2"] {
        give_torch(&cluster, host, "2.4.0", "'12.1'");
    }
    let place = "mount -t tmpfs none /usr/local && mkdir -p /usr/local/cuda-12.4/compat";
    cluster.on("n1", &format!("{place} && cp {} /usr/local/cuda-12.4/compat", file.display()));
    let told = json(&client.run(&["doctor", "--json", "--only", "torch"]));
    let remedy = |host: &str| verdict(&told, "torch", host)["remedy"].as_str().unwrap_or_default().to_owned();
    let seen = verdict(&told, "torch", "n1");
    assert!(seen["evidence"].as_str().unwrap().ends_with("the driver serves CUDA 11.4 at most"), "{told:#}");
    let proposed = "hvtui run --env LD_LIBRARY_PATH=/usr/local/cuda-12.4/compat: with it the driver there starts, and serves CUDA 12.4; or ";
    assert!(remedy("n1").starts_with(proposed), "{told:#}");
    assert!(remedy("n2").starts_with("install a newer driver"), "{told:#}");
}

#[test]
fn what_is_as_it_should_be_passes_by_name() {
    let scripts = tempfile::tempdir().unwrap();
    let gpus = serde_json::json!([{ "uuid": "GPU-00000000-0000-0000-0000-000000000001" }]);
    let script = serde_json::json!({ "gpus": gpus, "cuda": 12040 });
    std::fs::write(scripts.path().join("n1.json"), script.to_string()).unwrap();
    let nvml = built::example("libfake_nvml.so");
    let fake: [&OsStr; 3] = ["--fake-nvml".as_ref(), nvml.as_ref(), scripts.path().as_ref()];
    let Some(cluster) = Cluster::ready(2, &fake) else { return };
    let client = Client::new(&cluster);
    client.write("hosts.toml", &cluster.hosts_toml(1).replace("slots = 1\n", ""));
    // a driver that starts, found by the loader's cache
    let file = library(
        &cluster,
        "libcuda.so.1",
        "int cuInit(unsigned f) { return f ? 1 : 0; }\n",
        &["-Wl,-soname,libcuda.so.1"],
    );
    cluster.on("n1", &format!("mkdir -p ~/cuda && cp {} ~/cuda", file.display()));
    cluster.on("n1", "/sbin/ldconfig -C ~/ld.cache ~/cuda && mount --bind ~/ld.cache /etc/ld.so.cache");
    // over the file that its sshd was started with
    let covers = |host: &str| {
        let file = cluster.dir().join(host).join("sshd_config");
        format!("> ~/sshd_config && mount --bind ~/sshd_config {}", file.display())
    };
    cluster.on("n1", &format!("printf 'MaxStartups 100:30:200\\nMaxSessions 20\\n' {}", covers("n1")));
    let told = json(&client.run(&["doctor", "--json", "--only", "sshd,hostname,stub,cuda"]));
    for (check, words) in [
        ("sshd", "OpenSSH_"),
        ("hostname", "n1"),
        ("stub", "/cuda/libcuda.so.1"),
        ("cuda", "cuInit succeeds"),
    ] {
        let one = verdict(&told, check, "n1");
        assert_eq!(one["mark"], "good", "{check}: {told:#}");
        assert!(one["evidence"].as_str().unwrap().contains(words), "{check}: {one:#}");
    }
    // and the same checks fail where it is not
    cluster.on("n2", &format!("mkdir -p ~/cuda/stubs && cp {} ~/cuda/stubs", file.display()));
    cluster.on("n2", "/sbin/ldconfig -C ~/ld.cache ~/cuda/stubs && mount --bind ~/ld.cache /etc/ld.so.cache");
    cluster.on("n2", &format!("echo MaxStartups 2:50:4 {}", covers("n2")));
    cluster.on("n2", "printf '127.0.1.1 n2\\n' > ~/hosts && mount --bind ~/hosts /etc/hosts");
    let told = json(&client.run(&["doctor", "--json", "--only", "sshd,hostname,stub"]));
    for (check, mark) in [("sshd", "look"), ("hostname", "look"), ("stub", "bad")] {
        assert_eq!(verdict(&told, check, "n2")["mark"], mark, "{check}: {told:#}");
        assert_eq!(verdict(&told, check, "n1")["mark"], "good", "{check}: {told:#}");
    }
    // one command a connection, a `Match` that ends with its own file, and a home that others may write
    let sshd = || {
        let told = json(&client.run(&["doctor", "--json", "--only", "sshd"]));
        assert_eq!(verdict(&told, "sshd", "n1")["mark"], "good", "{told:#}");
        let one = verdict(&told, "sshd", "n2");
        (one["mark"] == "look", one["evidence"].as_str().unwrap().to_owned(), one["fix"].clone())
    };
    cluster.on("n2", "echo MaxSessions 1 > ~/sshd_config");
    let (is_told, seen, _) = sshd();
    assert!(is_told && seen.ends_with("MaxStartups 10:30:100, MaxSessions 1"), "{seen}");
    cluster.on("n2", "printf 'Match User sftp\\nMaxSessions 1\\n' > ~/50-sftp.conf");
    cluster.on("n2", "printf 'Include %s/*.conf\\nMaxStartups 3\\n' ~ > ~/sshd_config");
    let (is_told, seen, _) = sshd();
    assert!(is_told && seen.ends_with("MaxStartups 3, MaxSessions 10"), "{seen}");
    cluster.on("n2", "echo MaxSessions 10 > ~/sshd_config; mkdir ~/.ssh; chmod 707 ~/.ssh");
    let (is_told, seen, _) = sshd();
    assert!(!is_told, "there are no keys to refuse: {seen}");
    cluster.on("n2", "touch ~/.ssh/authorized_keys && chmod 600 ~/.ssh/authorized_keys");
    let (is_told, seen, fix) = sshd();
    assert!(is_told && seen.contains(" can be written by others (mode "), "{seen}");
    cluster.on("n2", fix["command"].as_str().expect("a command"));
    let (is_told, seen, _) = sshd();
    assert!(!is_told, "{seen}");
    // where others may write the home no agent runs, and there is nothing to be asked
    cluster.on("n2", "chmod o+w ~");
    let told = json(&client.run(&["doctor", "--json", "--only", "kernel"]));
    let (ssh, kernel) = (verdict(&told, "ssh", "n2"), verdict(&told, "kernel", "n2"));
    assert!(ssh["mark"] == "bad" && ssh.to_string().contains("chmod go-w /root"), "{told:#}");
    assert_eq!(kernel["mark"], "unknown", "{told:#}");
    assert!(!kernel["evidence"].as_str().unwrap().contains("no answer within"), "{told:#}");
}

/// GPUs for each host, and the arguments of a cluster that has them.
fn with_gpus(hosts: &[&str], then: impl FnOnce(&Cluster)) {
    let scripts = tempfile::tempdir().unwrap();
    for (at, host) in hosts.iter().enumerate() {
        let uuid = format!("GPU-00000000-0000-0000-0000-00000000000{at}");
        let script = serde_json::json!({ "gpus": [{ "uuid": uuid }], "cuda": 12040 });
        std::fs::write(scripts.path().join(format!("{host}.json")), script.to_string()).unwrap();
    }
    let nvml = built::example("libfake_nvml.so");
    let fake: [&OsStr; 3] = ["--fake-nvml".as_ref(), nvml.as_ref(), scripts.path().as_ref()];
    if let Some(cluster) = Cluster::ready(hosts.len(), &fake) {
        then(&cluster);
    }
}

#[test]
fn builds_that_lack_what_the_kind_needs_are_told_where_there_are_gpus() {
    with_gpus(&["n1", "n2"], |cluster| {
        let client = Client::new(cluster);
        client.write("hosts.toml", &cluster.hosts_toml(1).replace("slots = 1\n", ""));
        // a torch for CUDA, with NCCL on n1 and without it on n2
        for (host, nccl) in [("n1", "True"), ("n2", "False")] {
            give_torch(cluster, host, "2.4.0", "'12.4'");
            let init = "from . import version\\n__version__ = \"2.4.0\"\\nclass cuda:\\n    def is_available(): return True\\n\
                        class distributed:\\n    def is_available(): return True\\n    def is_nccl_available(): return ";
            cluster.on(host, &format!(
                "for v in 9 10 11 12 13; do printf '{init}{nccl}\\n' > ~/.local/lib/python3.$v/site-packages/torch/__init__.py; done"
            ));
            cluster.on(host, "mkdir -p ~/t && printf 'import torch\\n' > ~/t/any.py");
            cluster.on(host, "printf 'import torch\\nif False: torch.distributed.init_process_group(\"nccl\")\\n' > ~/t/nccl.py");
        }
        let told = json(&client.run(&["doctor", "--json", "--only", "import"]));
        let without = verdict(&told, "import", "n2");
        let seen = "torch 2.4.0 of /usr/bin/python3 is built without NCCL";
        assert_eq!((&without["mark"], &without["evidence"]), (&"look".into(), &seen.into()), "{told:#}");
        assert_eq!(verdict(&told, "import", "n1")["mark"], "good", "{told:#}");
        let run = |host: &str, script: &str| {
            let line = ["run", "-H", host, "--workdir", "~/t", "--kind", "torch", "--", "python3", script];
            client.run(&line)
        };
        let refused = run("n2:1", "nccl.py");
        assert!(refused.code == 78 && refused.err.contains(seen), "{refused:?}");
        // each time, as it is not remembered as one that is well
        assert_eq!(run("n2:1", "nccl.py").code, 78);
        for (host, script) in [("n2:1", "any.py"), ("n1:1", "nccl.py")] {
            let fine = run(host, script);
            assert_eq!(fine.code, 0, "{fine:?}");
        }
        a_gpu_that_torch_has_no_code_for_is_told(cluster, &client);
        // the Open MPI of Debian is built without CUDA: of a launch whose ranks have GPUs it is told
        if !std::path::Path::new("/usr/bin/ompi_info").exists() {
            return skip("no ompi_info: apt-get install openmpi-bin");
        }
        let looked = client.run(&["run", "--dry-run", "-np", "2", "--kind", "mpi", "--", "./solver"]);
        assert!(
            looked.out.contains("Open MPI 4.") && looked.out.contains(" is built without CUDA"),
            "{looked:?}"
        );
    });
}

/// The driver of both tells a GPU that is newer than the torch of n2.
fn a_gpu_that_torch_has_no_code_for_is_told(cluster: &Cluster, client: &Client<'_>) {
    let code = "int cuInit(unsigned f) { return f ? 1 : 0; }\n\
                int cuDeviceGetCount(int *n) { *n = 1; return 0; }\n\
                int cuDeviceGet(int *d, int n) { *d = n; return 0; }\n\
                int cuDeviceGetUuid(char *u, int d) { for (int i = 0; i < 16; i++) u[i] = i == 15; return d; }\n\
                int cuDeviceGetAttribute(int *v, int a, int d) { *v = a == 75 ? 12 : 0; return d; }\n";
    let file = library(cluster, "libcuda.so.1", code, &["-Wl,-soname,libcuda.so.1"]);
    for (host, newest) in [("n1", "sm_120"), ("n2", "sm_90")] {
        cluster.on(host, &format!("mkdir -p ~/cuda && cp {} ~/cuda", file.display()));
        cluster.on(host, "/sbin/ldconfig -C ~/ld.cache ~/cuda && mount --bind ~/ld.cache /etc/ld.so.cache");
        let init = format!(
            "from . import version\\n__version__ = \"2.4.0\"\\nclass cuda:\\n    def is_available(): return True\\n    \
             def get_arch_list(): return [\"sm_80\", \"{newest}\"]\\n"
        );
        cluster.on(host, &format!(
            "for v in 9 10 11 12 13; do printf '{init}' > ~/.local/lib/python3.$v/site-packages/torch/__init__.py; done"
        ));
    }
    let told = json(&client.run(&["doctor", "--json", "--only", "import"]));
    let (good, odd) = (verdict(&told, "import", "n1"), verdict(&told, "import", "n2"));
    assert_eq!((&good["mark"], &odd["mark"]), (&"good".into(), &"bad".into()), "{told:#}");
    let seen = "of compute capability 12.0; torch 2.4.0 of /usr/bin/python3 is built for sm_80 sm_90";
    assert!(odd["evidence"].as_str().unwrap().ends_with(seen), "{odd:#}");
    assert!(odd["remedy"].as_str().unwrap().contains("for CUDA 12.8 or later"), "{odd:#}");
    let run = |host: &str| {
        let line = ["run", "-H", host, "--workdir", "~/t", "--kind", "torch", "--", "python3", "any.py"];
        client.run(&line)
    };
    let refused = run("n2:1");
    assert!(refused.code == 78 && refused.err.contains(seen), "{refused:?}");
    let served = run("n1:1");
    assert_eq!(served.code, 0, "{served:?}");
}

#[test]
fn imports_of_tensorflow_and_horovod_are_tried_and_what_an_environment_has_is_compared() {
    let Some(cluster) = Cluster::ready(3, &[]) else { return };
    let client = Client::new(&cluster);
    let torch = "import ctypes, os\\nfrom . import version\\n__version__ = '2.4.0'\\n\
                 ctypes.CDLL(os.path.join(os.path.dirname(__file__), 'lib', 'libtorch.so'))\\n";
    let of_torch = library(
        &cluster,
        "libtorch.so",
        "int _ZN3c104hereEv(void) { return 1; }\n",
        &["-Wl,-soname,libtorch.so"],
    );
    // n2 has a Horovod that was built for another torch, and n3 half a TensorFlow
    for (host, of_horovod, calls, of_tensorflow) in [
        ("n1", "import torch\\n", "_ZN3c104hereEv", "__version__ = '2.15.0'\\n"),
        ("n2", "import torch\\nfrom . import mpi_lib_v2\\n", "_ZN3c104goneEv", "__version__ = '2.15.0'\\n"),
        ("n3", "import torch\\n", "_ZN3c104hereEv", "import no_such_package\\n"),
    ] {
        let packages = [("torch", "2.4.0"), ("tensorflow", "2.15.0"), ("horovod", "0.28.1")];
        let files = [
            ("torch/__init__.py", torch),
            ("torch/version.py", "cuda = None\\n__version__ = '2.4.0'\\n"),
            ("tensorflow/__init__.py", of_tensorflow),
            ("horovod/__init__.py", "__version__ = '0.28.1'\\n"),
            ("horovod/torch/__init__.py", of_horovod),
            ("horovod/tensorflow/__init__.py", "import tensorflow\\n"),
        ];
        give_packages(&cluster, host, &packages, &files);
        let code = format!(
            "int _ZN3c104hereEv(void);\nint {calls}(void);\nint all(void) {{ return _ZN3c104hereEv() + {calls}(); }}\n"
        );
        let of_mpi = library(&cluster, &format!("{host}.so"), &code, &["-L.", "-l:libtorch.so"]);
        cluster.on(host, &format!(
            "for d in ~/.local/lib/python3.*/site-packages; do mkdir -p $d/torch/lib && cp {} $d/torch/lib && \
             cp {} $d/horovod/torch/mpi_lib_v2.so; done",
            of_torch.display(), of_mpi.display()
        ));
    }
    let told = json(&client.run(&["doctor", "--json", "--only", "import"]));
    let of = |told: &Value, check: &str, host: &str| {
        let text = |name: &str| verdict(told, check, host)[name].as_str().unwrap_or_default().to_owned();
        (text("mark"), text("evidence"), text("cause"))
    };
    let good = of(&told, "import", "n1");
    let words = "/usr/bin/python3 imports torch 2.4.0, tensorflow 2.15.0, horovod.torch, horovod.tensorflow";
    assert_eq!((good.0.as_str(), good.1.as_str()), ("good", words), "{told:#}");
    let (mark, seen, cause) = of(&told, "import", "n2");
    assert!(mark == "bad" && seen.contains("can't import horovod.torch: ImportError: "), "{told:#}");
    assert!(
        seen.ends_with("undefined symbol: _ZN3c104goneEv") && cause.contains("another torch"),
        "{told:#}"
    );
    let (mark, seen, _) = of(&told, "import", "n3");
    assert!(mark == "bad" && seen.contains("can't import tensorflow: ModuleNotFoundError"), "{told:#}");
    // the same is found without an import; a busy machine may not come to it at the first look
    let words = "Horovod 0.28.1 lacks _ZN3c104goneEv";
    let out = until_says(words, || client.run(&["doctor", "--json", "--only", "horovod"]).out);
    let told: Value = serde_json::from_str(&out).expect("JSON");
    let (mark, seen, cause) = of(&told, "horovod", "n2");
    assert_eq!((mark.as_str(), seen.as_str()), ("bad", words), "{told:#}");
    assert!(cause.starts_with("it was built for another torch"), "{told:#}");
    assert_ne!(of(&told, "horovod", "n1").0, "bad", "{told:#}");

    // an environment that a run activates is looked at on no host, but for what is imported from it
    for (host, version) in [("n1", "2.4.0"), ("n2", "2.4.0"), ("n3", "2.3.1")] {
        cluster.on(host, &format!(
            "mkdir -p ~/t && printf 'import torch\\n' > ~/t/train.py && python3 -m venv --without-pip ~/train && \
             for d in ~/train/lib/python3.*/site-packages; do mkdir $d/torch && echo 'cuda = None' > $d/torch/version.py && \
             printf 'from . import version\\n__version__ = \"{version}\"\\n' > $d/torch/__init__.py; done"
        ));
    }
    let run = |hosts: &str| {
        let line =
            ["run", "--dry-run", "-H", hosts, "--workdir", "~/t", "--kind", "torch", "--venv", "~/train"];
        client.run(&[&line[..], &["--", "python3", "train.py"]].concat())
    };
    let unlike = run("n1:1,n2:1,n3:1");
    let words = "/train/bin/python3: torch 2.3.1 (other hosts have 2.4.0)";
    assert!(unlike.out.contains(words), "{unlike:?}");
    let alike = run("n1:1,n2:1");
    assert!(!alike.out.contains("/train/bin/python3: "), "{alike:?}");
}

#[test]
fn a_rank_without_hooks_is_looked_into_by_py_spy() {
    let Some(cluster) = Cluster::ready(1, &[]) else { return };
    let client = Client::new(&cluster);
    // prints what the real one does, and the process that it was asked for
    let spy = "#!/bin/sh\n[ \"$1 $2 $3\" = \"dump --nonblocking --pid\" ] || exit 2\n\
               printf 'Process %%s: python3 train.py\\nPython v3.11.2 (/usr/bin/python3)\\n\\nThread %%s (idle): \"MainThread\"\\n    \
               wait (torch/distributed/distributed_c10d.py:2806)\\n    train (train.py:41)\\n    <module> (train.py:60)\\n' $4 $4\n";
    std::fs::write(cluster.dir().join("py-spy"), spy.replace("%%", "%")).expect("a py-spy");
    let at = cluster.dir().join("py-spy");
    cluster.on("n1", &format!("mkdir -p ~/bin && cp {} ~/bin && chmod +x ~/bin/py-spy", at.display()));
    cluster.change("sshd", "n1 SetEnv PATH=/usr/local/bin:/usr/bin:/bin");
    let home = cluster.on("n1", "echo ~");
    let path = format!("PATH={}/bin:/usr/bin:/bin", home.trim());
    let started = client.run(&["run", "--detach", "-H", "n1:1", "--env", &path, "--", "sleep", "1000"]);
    assert_eq!(started.code, 0, "{started:?}");
    until_says("by py-spy", || client.run(&["stacks", "last"]).out);
    let told = client.run(&["stacks", "last"]).out;
    for words in ["distributed_c10d.py:2806", "wait", "train.py:41"] {
        assert!(told.contains(words), "{words}: {told}");
    }
    assert_eq!(client.run(&["stop", "last", "--now"]).code, 0);
}

#[test]
fn an_image_for_a_newer_driver_keeps_a_run_from_starting() {
    let scripts = tempfile::tempdir().unwrap();
    let gpus = serde_json::json!([{ "uuid": "GPU-00000000-0000-0000-0000-000000000001" }]);
    let script = serde_json::json!({ "gpus": gpus, "cuda": 12020, "driver": "535.104.05" });
    std::fs::write(scripts.path().join("n1.json"), script.to_string()).unwrap();
    let nvml = built::example("libfake_nvml.so");
    let fake: [&OsStr; 3] = ["--fake-nvml".as_ref(), nvml.as_ref(), scripts.path().as_ref()];
    let Some(cluster) = Cluster::ready(1, &fake) else { return };
    let client = Client::new(&cluster);
    client.write("hosts.toml", &cluster.hosts_toml(1).replace("slots = 1\n", ""));
    // a docker that has one image for a newer driver and one for this one
    let docker = "#!/bin/sh\ncase \"$1 $*\" in\n\
                  'info '*) echo '{\"ServerVersion\":\"27.3.1\",\"Runtimes\":{\"nvidia\":{}}}';;\n\
                  *new:1) echo 'NVIDIA_REQUIRE_CUDA=cuda>=12.4 brand=tesla,driver>=550,driver<551';;\n\
                  *old:1) echo 'NVIDIA_REQUIRE_CUDA=cuda>=12.1';;\n\
                  *) exit 1;;\nesac\n";
    std::fs::write(cluster.dir().join("docker"), docker).expect("a docker");
    let from = cluster.dir().join("docker");
    cluster.on("n1", &format!("mkdir -p ~/bin && cp {} ~/bin && chmod +x ~/bin/docker", from.display()));
    cluster.on("n1", "mount --bind ~/bin /usr/local/bin");
    let run = |image: &str| client.run(&["run", "-np", "1", "--image", image, "--", "true"]);
    let new = run("new:1");
    let words = "the image is for CUDA 12.4 and later; the driver serves 12.2 at most";
    assert!(new.code == 78 && new.err.contains(words), "{new:?}");
    assert!(!run("old:1").err.contains("the image is for CUDA"), "that one is not what keeps it");
}

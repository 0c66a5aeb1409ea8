//! What hosts should have alike, and have not.

use std::ffi::OsStr;
use std::fmt::Write;
use std::process::Command;

use serde_json::Value;

use super::{json, verdict};
use crate::common::built;
use crate::common::client::Client;
use crate::common::cluster::Cluster;
use crate::common::in_time::StatusInTime;

/// Python packages of a host that are their metadata alone, and files of one of them.
pub(super) fn give_packages(
    cluster: &Cluster,
    host: &str,
    packages: &[(&str, &str)],
    files: &[(&str, &str)],
) {
    let mut line = "for v in 9 10 11 12 13; do d=~/.local/lib/python3.$v/site-packages; ".to_owned();
    for (name, version) in packages {
        let _ = write!(
            line,
            "mkdir -p $d/{name}-{version}.dist-info; printf 'Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n' > \
             $d/{name}-{version}.dist-info/METADATA; "
        );
    }
    for (path, text) in files {
        let _ = write!(line, "mkdir -p $(dirname $d/{path}); printf \"{text}\" > $d/{path}; ");
    }
    cluster.on(host, &(line + "done"));
}

#[test]
fn what_pythons_packages_bring_along_is_compared_and_must_fit() {
    let scripts = tempfile::tempdir().unwrap();
    let gpus = serde_json::json!([{ "uuid": "GPU-00000000-0000-0000-0000-000000000001" }]);
    let script = serde_json::json!({ "gpus": gpus, "cuda": 12040 });
    for host in ["n1", "n2", "n3"] {
        std::fs::write(scripts.path().join(format!("{host}.json")), script.to_string()).unwrap();
    }
    let library = built::example("libfake_nvml.so");
    let fake: [&OsStr; 3] = ["--fake-nvml".as_ref(), library.as_ref(), scripts.path().as_ref()];
    let Some(cluster) = Cluster::ready(3, &fake) else { return };
    let client = Client::new(&cluster);
    client.write("hosts.toml", &cluster.hosts_toml(1).replace("slots = 1\n", ""));
    let build = "build_info = OrderedDict([('cuda_version', '12.2'), ('cudnn_version', '8'), ('is_cuda_build', True)])";
    let tensorflow = [("tensorflow/__init__.py", ""), ("tensorflow/python/platform/build_info.py", build)];
    for (host, nccl, cudnn) in
        [("n1", "2.20.5", "8.9.7"), ("n2", "2.20.5", "8.9.7"), ("n3", "2.21.5", "9.1.0")]
    {
        let packages = [("nvidia_nccl_cu12", nccl), ("nvidia_cudnn_cu12", cudnn), ("tensorflow", "2.15.0")];
        give_packages(&cluster, host, &packages, &tensorflow);
    }
    let told = json(&client.run(&["doctor", "--json", "--only", "packages,tf"]));
    let packages = verdict(&told, "packages", "n3");
    // TensorFlow was built with neither: they merely lie there
    assert_eq!(
        (&packages["mark"], &verdict(&told, "packages", "n1")["mark"]),
        (&"look".into(), &"good".into())
    );
    let seen = packages["evidence"].as_str().unwrap();
    assert!(seen.contains("nvidia-nccl-cu12 2.21.5 (other hosts have 2.20.5)"), "{told:#}");
    assert!(seen.contains("nvidia-cudnn-cu12 9.1.0 (other hosts have 8.9.7)"), "{told:#}");
    let tf = verdict(&told, "tf", "n3");
    assert_eq!(
        (&tf["mark"], &verdict(&told, "tf", "n1")["mark"]),
        (&"look".into(), &"good".into()),
        "{told:#}"
    );
    assert!(
        tf["evidence"].as_str().unwrap().contains("CUDA 12.2 and cuDNN 8; of cuDNN there is 9"),
        "{told:#}"
    );
    // numpy 2 beside what was built for numpy 1, and a library that another package has replaced
    give_packages(&cluster, "n1", &[("numpy", "2.0.1")], &[]);
    cluster.on(
        "n2",
        "for v in 9 10 11 12 13; do d=~/.local/lib/python3.$v/site-packages; echo 'Requires-Dist: nvidia-nccl-cu12==2.19.3; \
         platform_system == \"Linux\"' >> $d/tensorflow-2.15.0.dist-info/METADATA; done",
    );
    let told = json(&client.run(&["doctor", "--json", "--only", "packages"]));
    let seen = |host: &str| verdict(&told, "packages", host)["evidence"].as_str().unwrap().to_owned();
    assert_eq!(seen("n1"), "tensorflow 2.15.0 beside numpy 2.0.1", "{told:#}");
    assert_eq!(seen("n2"), "tensorflow was built with nvidia-nccl-cu12 2.19.3, and 2.20.5 is there");
    of_another_compiler(&cluster, &client);
}

/// n2 has a TensorFlow that an old GCC has built, as its library's notes say, and no Horovod yet; that of n1 is of this GCC.
fn of_another_compiler(cluster: &Cluster, client: &Client<'_>) {
    for (host, note) in [("n1", ""), ("n2", "__asm__(\".ident \\\"GCC: (GNU) 4.8.5 20150623\\\"\");\n")] {
        let (source, library) =
            (cluster.dir().join("tensorflow.c"), cluster.dir().join(format!("{host}.so")));
        std::fs::write(&source, format!("{note}int tensorflow;\n")).expect("a source");
        let mut compile = Command::new("gcc");
        compile.args(["-shared", "-fPIC", "-nostdlib"]).args((!note.is_empty()).then_some("-fno-ident"));
        assert!(compile.arg("-o").arg(&library).arg(&source).status_in_time().expect("gcc").success());
        let copy = format!(
            "for v in 9 10 11 12 13; do cp {} ~/.local/lib/python3.$v/site-packages/tensorflow/python/_pywrap_tensorflow_internal.so; done",
            library.display()
        );
        cluster.on(host, &copy);
    }
    let told = json(&client.run(&["doctor", "--json", "--only", "tf", "-H", "n1", "-H", "n2"]));
    let (same, odd) = (verdict(&told, "tf", "n1"), verdict(&told, "tf", "n2"));
    assert_eq!((&same["mark"], &odd["mark"]), (&"good".into(), &"look".into()), "{told:#}");
    assert!(
        odd["evidence"]
            .as_str()
            .unwrap()
            .starts_with("TensorFlow 2.15.0 was built by GCC 4.8.5; here is GCC "),
        "{odd:#}"
    );
    assert!(
        odd["remedy"].as_str().unwrap().starts_with("CC=gcc-4 CXX=g++-4 HOROVOD_WITH_TENSORFLOW=1 "),
        "{odd:#}"
    );
    a_script_of_tensorflow_1_is_told(cluster, client);
}

/// On n1, which has TensorFlow 2.
fn a_script_of_tensorflow_1_is_told(cluster: &Cluster, client: &Client<'_>) {
    for (name, line) in [("old.py", "with tf.Session() as s: pass"), ("new.py", "print(tf.constant(1))")] {
        let script = format!("mkdir -p ~/t && printf 'import tensorflow as tf\n{line}\n' > ~/t/{name}");
        cluster.on("n1", &script);
        let run = ["run", "--dry-run", "-H", "n1:1", "--workdir", "~/t", "--kind", "tensorflow", "--"];
        let looked = client.run(&[&run[..], &["python3", name]].concat());
        let is_told = looked.out.contains("TensorFlow 2.15.0, and the script calls tf.Session");
        assert_eq!(is_told, name == "old.py", "{looked:?}");
    }
}

#[test]
fn hosts_that_are_set_up_unlike_each_other_are_told_apart() {
    let scripts = tempfile::tempdir().unwrap();
    for (host, driver) in [("n1", "550.54.14"), ("n2", "535.54.03"), ("n3", "550.54.14")] {
        let gpus = serde_json::json!([{ "uuid": "GPU-00000000-0000-0000-0000-000000000001" }]);
        let script = serde_json::json!({ "driver": driver, "gpus": gpus }).to_string();
        std::fs::write(scripts.path().join(format!("{host}.json")), script).unwrap();
    }
    let library = built::example("libfake_nvml.so");
    let fake: [&OsStr; 3] = ["--fake-nvml".as_ref(), library.as_ref(), scripts.path().as_ref()];
    let Some(cluster) = Cluster::ready(3, &fake) else { return };
    let client = Client::new(&cluster);
    let look =
        || json(&client.run(&["doctor", "--json", "--only", "hostname,kernel,limits,driver,libraries,mpi"]));
    let mark = |told: &Value, check: &str, host: &str| {
        verdict(told, check, host)["mark"].as_str().unwrap().to_owned()
    };
    let before = look();
    for check in ["kernel", "limits", "libraries", "mpi"] {
        for host in ["n1", "n2", "n3"] {
            assert_eq!(mark(&before, check, host), "good", "{before:#}");
        }
    }
    assert_eq!(
        [mark(&before, "driver", "n1"), mark(&before, "driver", "n2")],
        ["good", "look"],
        "{before:#}"
    );
    // a name that mpirun refuses, a reboot that is due
    cluster.on("n2", "python3 -c 'import socket; socket.sethostname(\"gpu_b\")'");
    cluster.on("n2", "touch /run/reboot-required");
    // an ssh server whose commands may open few files
    for sshd in cluster.processes("n3").iter().filter(|process| process.args.contains("sshd")) {
        cluster.on("n3", &format!("prlimit --pid {} --nofile=512:512 --nproc=512:512", sshd.pid));
    }
    // an NCCL that the loader finds, and another mpirun
    let source = cluster.dir().join("nccl.c");
    std::fs::write(&source, "int ncclGetVersion(int *v) { *v = 21903; return 0; }\n").expect("a source");
    let file = cluster.dir().join("libnccl.so.2.19.3");
    let mut compile = Command::new("gcc");
    compile.args(["-shared", "-fPIC", "-Wl,-soname,libnccl.so.2", "-o"]).arg(&file).arg(&source);
    assert!(compile.status_in_time().expect("gcc").success());
    cluster.on(
        "n3",
        &format!(
            "mkdir -p ~/nccl && cp {} ~/nccl && ln -s libnccl.so.2.19.3 ~/nccl/libnccl.so.2",
            file.display()
        ),
    );
    cluster.on("n3", "/sbin/ldconfig -C ~/ld.cache ~/nccl && mount --bind ~/ld.cache /etc/ld.so.cache");
    let mpirun = "printf '#!/bin/sh\\necho mpirun \\(Open MPI\\) 9.0.3\\n' > ~/mpirun && chmod +x ~/mpirun && \
                  mount --bind ~/mpirun $(readlink -f $(command -v mpirun))";
    cluster.on("n3", mpirun);
    let told = look();
    assert_eq!(mark(&told, "hostname", "n2"), "bad", "{told:#}");
    assert_eq!(verdict(&told, "hostname", "n2")["evidence"], "its name is 'gpu_b'");
    assert_eq!([mark(&told, "kernel", "n2"), mark(&told, "kernel", "n1")], ["look", "good"], "{told:#}");
    assert_eq!([mark(&told, "limits", "n3"), mark(&told, "limits", "n1")], ["bad", "good"], "{told:#}");
    let driver = verdict(&told, "driver", "n2")["evidence"].as_str().unwrap();
    assert!(driver.starts_with("535.54.03") && driver.ends_with("other hosts have 550.54.14"), "{driver}");
    assert_eq!(
        [mark(&told, "libraries", "n3"), mark(&told, "libraries", "n1")],
        ["look", "good"],
        "{told:#}"
    );
    assert!(
        verdict(&told, "libraries", "n3")["evidence"].as_str().unwrap().contains("NCCL 2.19.3 ("),
        "{told:#}"
    );
    assert_eq!([mark(&told, "mpi", "n3"), mark(&told, "mpi", "n1")], ["bad", "good"], "{told:#}");
    // a toolkit of its own, and a library that a variable names before the loader's cache
    let toolkit = |host: &str, version: &str| {
        let line = format!(
            "mount -t tmpfs none /usr/local && mkdir -p /usr/local/cuda && echo '{{\"cuda\": {{\"version\": \"{version}\"}}}}' > \
             /usr/local/cuda/version.json"
        );
        cluster.on(host, &line);
    };
    toolkit("n1", "12.4.1");
    let alone = look();
    assert_eq!(mark(&alone, "libraries", "n1"), "good", "{alone:#}");
    toolkit("n2", "11.8.0");
    cluster.on("n3", "cp ~/nccl/libnccl.so.2.19.3 ~/libnccl.so.2.21.5");
    cluster.on("n3", ": > ~/libcudnn.so.9.1.0; : > ~/libcudart.so.12.4.127");
    cluster.change("sshd", "n3 SetEnv LD_LIBRARY_PATH=/root");
    let told = look();
    let seen = |host: &str| verdict(&told, "libraries", host)["evidence"].as_str().unwrap().to_owned();
    assert!(seen("n2").contains("CUDA toolkit 11.8.0 (n1 has 12.4.1)"), "{told:#}");
    for words in ["NCCL 2.21.5 (", "cuDNN 9.1.0 (", "CUDA runtime 12.4.127 ("] {
        assert!(seen("n3").contains(words) && !seen("n2").contains(words), "{words}: {told:#}");
    }
}

#[test]
fn networks_and_builds_that_differ_are_told_with_the_odd_host() {
    let Some(cluster) = Cluster::ready(3, &[]) else { return };
    let client = Client::new(&cluster);
    let interface = "ip -o -4 addr show scope global | awk '{ print $2; exit }'";
    let name = cluster.on("n2", interface).trim().split('@').next().unwrap_or_default().to_owned();
    cluster.on("n2", &format!("ip link set dev {name} mtu 1400"));
    for (host, classes) in
        [("n1", "GlooAllreduce MPIAllreduce"), ("n2", "GlooAllreduce MPIAllreduce"), ("n3", "GlooAllreduce")]
    {
        let line = format!(
            "for v in 9 10 11 12 13; do d=~/.local/lib/python3.$v/site-packages; mkdir -p $d/horovod-0.28.1.dist-info \
             $d/horovod/torch; printf 'Metadata-Version: 2.1\nName: horovod\nVersion: 0.28.1\n' > \
             $d/horovod-0.28.1.dist-info/METADATA; : > $d/horovod/__init__.py; \
             echo '{classes}' > $d/horovod/torch/mpi_lib_v2.so; done"
        );
        cluster.on(host, &line);
    }
    let ended = client.run(&["doctor", "--json", "--only", "interface,horovod,sshd,kernel,leftover"]);
    let told = json(&ended);
    assert_eq!(ended.code, 1, "{told:#}");
    let network = verdict(&told, "interface", "n2");
    let seen = format!("{name} has MTU 1400; other hosts have 1500");
    assert_eq!((&network["mark"], &network["evidence"]), (&"look".into(), &seen.into()));
    assert_eq!(network["remedy"], format!("ip link set dev {name} mtu 1500"));
    let horovod = verdict(&told, "horovod", "n3");
    assert_eq!(horovod["mark"], "bad", "{horovod:#}");
    let seen = "Horovod 0.28.1 for torch, built with gloo; other hosts have gloo mpi";
    assert_eq!(horovod["evidence"], seen);
    for (check, host) in [("interface", "n1"), ("horovod", "n1"), ("kernel", "n1")] {
        assert_eq!(verdict(&told, check, host)["mark"], "good", "{told:#}");
    }
    assert_eq!(verdict(&told, "leftover", "n1")["evidence"], "no process has outlived its run");
    // one without what its ranks would agree by does not start, and one that has it does
    let built = |host: &str, classes: &str| {
        let line = format!(
            "for d in ~/.local/lib/python3.*/site-packages/horovod/torch; do echo '{classes}' > $d/mpi_lib_v2.so; done"
        );
        cluster.on(host, &line);
    };
    built("n3", "MPIAllreduce");
    let run = |more: &[&str]| {
        let line =
            [&["run", "-H", "n3:1", "--kind", "horovod"], more, &["--", "python3", "-c", "print('ran')"]]
                .concat();
        client.run(&line)
    };
    let lacking = run(&[]);
    let words = "Horovod 0.28.1 was built with mpi, without Gloo";
    assert!(lacking.code == 78 && lacking.err.contains(words), "{lacking:?}");
    let told = run(&["--env", "HOROVOD_CONTROLLER=mpi"]);
    assert!(told.code == 0 && told.out.contains("ran"), "{told:?}");
    built("n3", "GlooAllreduce MPIAllreduce");
    assert_eq!(run(&[]).code, 0);
}

#[test]
fn compilers_toolkits_and_clocks_of_hosts_are_compared() {
    let scripts = tempfile::tempdir().unwrap();
    for host in ["n1", "n2", "n3"] {
        let gpus = serde_json::json!([{ "uuid": "GPU-00000000-0000-0000-0000-000000000001" }]);
        let script = serde_json::json!({ "driver": "550.54.14", "gpus": gpus }).to_string();
        std::fs::write(scripts.path().join(format!("{host}.json")), script).unwrap();
    }
    let library = built::example("libfake_nvml.so");
    let fake: [&OsStr; 3] = ["--fake-nvml".as_ref(), library.as_ref(), scripts.path().as_ref()];
    let Some(cluster) = Cluster::ready(3, &fake) else { return };
    let client = Client::new(&cluster);
    let gives = |host: &str, name: &str, says: &str| {
        let line = format!(
            "mkdir -p ~/bin && printf '#!/bin/sh\\necho {says}\\n' > ~/bin/{name} && chmod +x ~/bin/{name} && \
             mount --bind ~/bin /usr/local/sbin"
        );
        cluster.on(host, &line);
    };
    for (host, gcc, toolkit) in
        [("n1", "12.2.0", "1.17.4"), ("n2", "12.3.0", "1.17.4"), ("n3", "9.4.0", "1.13.5")]
    {
        gives(host, "gcc", gcc);
        gives(host, "nvidia-ctk", &format!("NVIDIA Container Toolkit CLI version {toolkit}"));
    }
    // a CUDA whose compiler takes no GCC as new as this, and GPUs that were described for the driver before
    let cuda = "mkdir -p ~/cuda/bin ~/cuda/include/crt ~/cdi && printf '#!/bin/sh\n' > ~/cuda/bin/nvcc && chmod +x ~/cuda/bin/nvcc && \
                ln -s ~/cuda/bin/nvcc ~/bin/nvcc && echo '#error -- unsupported GNU version! gcc versions later than 11 are not supported!' \
                > ~/cuda/include/crt/host_config.h && mkdir -p /run/cdi && \
                echo '- hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.535.54.03' > /run/cdi/nvidia.yaml";
    cluster.on("n2", cuda);
    // a clock that is a minute ahead
    let shim = cluster.dir().join("clock.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/faults/clock.c");
    let shift = cluster.dir().join("shift");
    std::fs::write(&shift, 60_i64.to_ne_bytes()).expect("the shift");
    let always = format!("-DCLOCK_SHIFT=\"{}\"", shift.display());
    let made =
        Command::new("gcc").args(["-shared", "-fPIC", &always, "-o"]).arg(&shim).arg(source).status_in_time();
    assert!(made.expect("gcc").success());
    cluster.change("sshd", &format!("n3 SetEnv LD_PRELOAD={}", shim.display()));
    let told = json(&client.run(&["doctor", "--json", "--only", "compiler,toolkit,clock,docker"]));
    let of = |check: &str, host: &str| {
        let one = verdict(&told, check, host);
        (one["mark"].as_str().unwrap().to_owned(), one["evidence"].as_str().unwrap().to_owned())
    };
    let look = |words: &str| ("look".to_owned(), words.to_owned());
    // its own words, not those of the template that it could not fill
    let docker = of("docker", "n1").1;
    let is_its_own = docker.contains("docker daemon") || docker.contains("docker API");
    assert!(docker == "no docker" || is_its_own, "{docker}");
    assert_eq!(of("compiler", "n1"), ("good".to_owned(), "gcc 12.2.0".to_owned()));
    assert_eq!(of("compiler", "n2"), look("gcc 12.3.0, and CUDA's nvcc takes gcc 11 at most"));
    assert_eq!(of("compiler", "n3"), look("gcc 9.4.0 (other hosts have 12)"));
    assert_eq!(of("toolkit", "n1"), look("nvidia-container-toolkit 1.17.4 and no CDI (n2 has CDI)"));
    let described = "/var/run/cdi/nvidia.yaml was written for driver 535.54.03, and 550.54.14 runs";
    assert_eq!(of("toolkit", "n2"), look(described));
    assert_eq!(of("toolkit", "n3"), look("nvidia-container-toolkit 1.13.5 (other hosts have 1.17)"));
    assert_eq!(of("clock", "n1").0, "good", "{told:#}");
    let (mark, ahead) = of("clock", "n3");
    assert!(
        mark == "look"
            && ahead.starts_with("its clock is ")
            && ahead.contains("s ahead of that of most hosts"),
        "{ahead}"
    );
    descriptions_of_gpus_are_compared(&cluster, &client);
}

/// n1 and n2 have the same toolkit, n3 another one.
fn descriptions_of_gpus_are_compared(cluster: &Cluster, client: &Client<'_>) {
    let describe = |host: &str, form: &str| {
        let text =
            format!("cdiVersion: {form}\\nkind: nvidia.com/gpu\\n- hostPath: /lib/libcuda.so.550.54.14\\n");
        cluster.on(host, &format!("mkdir -p /run/cdi && printf '{text}' > /run/cdi/nvidia.yaml"));
    };
    let look = || {
        let told = json(&client.run(&["doctor", "--json", "--only", "toolkit"]));
        ["n1", "n2"].map(|host| {
            let one = verdict(&told, "toolkit", host);
            (one["mark"].as_str().unwrap().to_owned(), one["evidence"].as_str().unwrap().to_owned())
        })
    };
    let look_at = |words: &str| ("look".to_owned(), format!("nvidia-container-toolkit 1.17.4 and {words}"));
    describe("n2", "0.5.0");
    assert_eq!(look(), [look_at("no CDI (n2 has CDI)"), look_at("CDI (n1 has no CDI)")]);
    // nvidia-ctk writes the lowest one that holds what it describes
    describe("n1", "0.3.0");
    assert_eq!(look().map(|(mark, _)| mark), ["good", "good"]);
}

#[test]
fn a_logout_that_ends_runs_or_takes_their_memory_is_told_with_what_prevents_it() {
    let Some(cluster) = Cluster::ready(1, &[]) else { return };
    // a session of another user than root, as systemd's login manager makes them
    let hierarchies = ["/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
    let of_sessions = |folder: &&str| std::fs::exists(format!("{folder}/cgroup.procs")).unwrap_or(false);
    let Some(hierarchy) = hierarchies.into_iter().find(of_sessions) else {
        return crate::common::cluster::skip("no control groups in /sys/fs/cgroup");
    };
    let folder = format!("{hierarchy}/hvtui-test-{}", std::process::id());
    let set_up = format!(
        "mkdir -p /run/other /run/systemd/logind.conf.d {folder}/session-1.scope && cp {} /run/other/hvtui && \
         chown -R 65534:65534 /run/other && echo done",
        crate::common::program::hvtui()
    );
    if cluster.on("n1", &set_up) != "done\n" {
        return crate::common::cluster::skip("no control group can be made");
    }
    let look = |configured: &str| {
        let line = format!(
            "printf '[Login]\\n{configured}\\n' > /run/systemd/logind.conf.d/test.conf; \
             echo $$ > {folder}/session-1.scope/cgroup.procs; cd /run/other && setpriv --reuid=65534 --regid=65534 \
             --clear-groups env HOME=/run/other USER=li /run/other/hvtui doctor --only logout --json"
        );
        let told: Value = serde_json::from_str(&cluster.on("n1", &line)).expect("JSON");
        let one = &told["checks"].as_array().expect("checks")[1]["verdicts"][0];
        (one["mark"].clone(), one["evidence"].clone(), one["remedy"].clone())
    };
    let (mark, seen, remedy) = look("KillUserProcesses=yes");
    assert_eq!((mark, remedy), ("look".into(), "sudo loginctl enable-linger li".into()), "{seen}");
    assert_eq!(seen, "logging out ends the run here (KillUserProcesses=yes)");
    let (mark, seen, remedy) = look("KillUserProcesses=no\\nRemoveIPC=yes");
    assert_eq!((mark, remedy), ("look".into(), "sudo loginctl enable-linger li".into()), "{seen}");
    let (mark, seen, _) = look("KillUserProcesses=no\\nRemoveIPC=no");
    assert_eq!((mark, seen), ("good".into(), "a run outlives its ssh session".into()));
    cluster.on("n1", &format!("rmdir {folder}/session-1.scope {folder}"));
}

//! The environment that ranks find, on two real ssh hosts with homes of their own: conda, venv, environment modules,
//! the login shell's variables and resource limits, what refuses a run before anything starts, and what is written nowhere.
//!
//! No conda can be had from the distribution: `CONDA` builds a tree that is laid out as Miniconda lays it out, with a
//! script of an installed package that is run on activation.

use std::path::Path;
use std::sync::OnceLock;

use crate::common::client::{Client, Ended, printed, run};
use crate::common::cluster::{Cluster, skip};
use crate::common::in_time::OutputInTime;
use crate::python_hooks::has_torch;

/// `conda NAME...`: a Miniconda in `~/miniconda3` with these environments; the first has an activation script, a
/// variable of its own and one of a package.
const CONDA: &str = r#"
set -e
root=~/miniconda3
mkdir -p $root/bin $root/condabin $root/conda-meta
touch $root/conda-meta/history
printf '#!/bin/sh\nexit 1\n' > $root/bin/conda
chmod 755 $root/bin/conda
ln -sf ../bin/conda $root/condabin/conda
for name in "$@"; do
    prefix=$root/envs/$name
    mkdir -p $prefix/bin $prefix/conda-meta $prefix/etc/conda/activate.d $prefix/etc/conda/env_vars.d $prefix/lib
    touch $prefix/conda-meta/history
    printf '#!/bin/sh\nexec /usr/bin/python3 "$@"\n' > $prefix/bin/python
    printf '#!/bin/sh\necho tool of %s\n' "$name" > $prefix/bin/only-there
    chmod 755 $prefix/bin/python $prefix/bin/only-there
done
prefix=$root/envs/$1
echo 'echo a script that prints; export GDAL_DATA="$CONDA_PREFIX/share/gdal"; unset ABSENT' > $prefix/etc/conda/activate.d/gdal-activate.sh
echo '{"version": 1, "env_vars": {"OWN": "it'"'"'s mine", "GONE": "***unset***"}}' > $prefix/conda-meta/state
echo '{"OF_PACKAGE": "1"}' > $prefix/etc/conda/env_vars.d/package.json
"#;

/// Two healthy hosts; they end with this process. What a test makes there has names of its own.
fn two() -> Option<&'static Cluster> {
    static TWO: OnceLock<Option<Cluster>> = OnceLock::new();
    TWO.get_or_init(|| {
        let cluster = Cluster::ready(2, &[])?;
        for host in ["n1", "n2"] {
            let names = if host == "n1" { "train only-a" } else { "train torch2" };
            cluster.on(host, &format!("set -- {names}\n{CONDA}"));
            cluster.on(host, "/usr/bin/python3 -m venv --without-pip ~/venv && mkdir -p ~/work");
            // where a shell that is no login shell does not look
            let tool = "mkdir -p ~/tools && printf '#!/bin/sh\necho tool runs\n' >~/tools/horovod-tool && chmod 755 ~/tools/horovod-tool";
            cluster.on(host, tool);
            cluster.on(
                host,
                "echo 'echo a profile that prints; export PATH=$HOME/tools:$PATH LOGIN_SECRET=canary-77aa MULTI=\"a\nb\"' > ~/.profile",
            );
            cluster.on(host, "rm -f ~/.bash_profile ~/.bash_login");
        }
        cluster.on("n1", "/usr/bin/python3 -m venv --without-pip ~/first-only");
        cluster.on("n1", "mkdir -p ~/work/sub && ln -s ../../venv ~/work/sub/env");
        cluster.on("n2", "mkdir -p ~/work/sub && ln -s ../../venv ~/work/sub/env");
        Some(cluster)
    })
    .as_ref()
}

#[track_caller]
fn refused(ended: &Ended, code: i32, words: &str) {
    assert_eq!(ended.code, code, "{ended:#?}");
    assert!(ended.err.contains(words), "'{words}' is not said: {ended:#?}");
    assert_eq!(ended.out, "", "nothing has started: {ended:#?}");
}

#[test]
fn a_venv_is_entered_on_both_hosts() {
    let Some(cluster) = two() else { return };
    let client = Client::new(cluster);
    let show = "import os, sys; print(sys.prefix, os.environ['VIRTUAL_ENV'], os.environ['PATH'].split(':')[0], \
                'PYTHONHOME' in os.environ)";
    let home = cluster.on("n1", "echo ~").trim().to_owned();
    for (path, option) in [("~/venv", ""), ("env", "--workdir ~/work/sub"), (&format!("{home}/venv"), "")] {
        let ended = run(&client, &format!("-np 2 --venv {path} {option} -- python -c \"{show}\""));
        assert_eq!(ended.code, 0, "{ended:#?}");
        let at = if path == "env" { format!("{home}/work/sub/env") } else { format!("{home}/venv") };
        let line = |rank: u32| format!("[{rank}] {at} {at} {at}/bin False");
        assert_eq!(printed(&ended), [line(0), line(1)], "{ended:#?}");
    }
}

#[test]
fn a_venv_that_one_host_lacks_refuses_the_run() {
    let Some(cluster) = two() else { return };
    let client = Client::new(cluster);
    let ended = run(&client, "-np 2 --venv ~/first-only -- python -c 'print(1)'");
    let home = cluster.on("n1", "echo ~").trim().to_owned();
    refused(&ended, 127, &format!("n2: no virtual environment at {home}/first-only"));
    assert!(ended.err.contains("python3 -m venv"), "the remedy is named: {ended:#?}");
    cluster.on("n1", "cp -a ~/venv ~/broken && ln -sf /nowhere/python3.9 ~/broken/bin/python");
    let ended = run(&client, "-np 1 -H n1:1 --venv ~/broken -- python -c 'print(1)'");
    refused(&ended, 127, "n1: ");
    assert!(ended.err.contains("/nowhere/python3.9"), "{ended:#?}");
}

#[test]
fn a_conda_environment_is_activated_as_conda_does_it() {
    let Some(cluster) = two() else { return };
    let client = Client::new(cluster);
    let home = cluster.on("n1", "echo ~").trim().to_owned();
    let show = "echo $CONDA_DEFAULT_ENV $CONDA_PREFIX $CONDA_SHLVL $GDAL_DATA \"$OWN\" $OF_PACKAGE ${GONE-unset}; only-there; command -v python";
    let ended = run(&client, &format!("-np 2 --conda train -- sh -c '{show}'"));
    assert_eq!(ended.code, 0, "{ended:#?}");
    let at = format!("{home}/miniconda3/envs/train");
    for rank in 0..2 {
        let said = format!("[{rank}] train {at} 1 {at}/share/gdal it's mine 1 unset");
        for line in [said, format!("[{rank}] tool of train"), format!("[{rank}] {at}/bin/python")] {
            assert!(ended.out.lines().any(|one| one == line), "{line}: {ended:#?}");
        }
    }
    assert!(!ended.out.contains("a script that prints"), "{ended:#?}");
    // by its path, and the base
    let ended = run(&client, "-np 1 --conda ~/miniconda3/envs/train -- sh -c 'echo $CONDA_PREFIX'");
    assert_eq!(printed(&ended), [format!("[0] {at}")], "{ended:#?}");
    let ended = run(&client, "-np 1 --conda base -- sh -c 'echo $CONDA_DEFAULT_ENV $CONDA_PREFIX'");
    assert_eq!(printed(&ended), [format!("[0] base {home}/miniconda3")], "{ended:#?}");
    // what the run says itself counts more, and so does hvtui
    let ended = run(
        &client,
        "-np 1 --conda train --env GDAL_DATA=/mine --env OWN= -- sh -c 'echo $GDAL_DATA,$OWN,$RANK'",
    );
    assert_eq!(printed(&ended), ["[0] /mine,,0"], "{ended:#?}");
}

#[test]
fn a_conda_environment_that_one_host_lacks_refuses_the_run_with_what_it_has() {
    let Some(cluster) = two() else { return };
    let client = Client::new(cluster);
    let home = cluster.on("n1", "echo ~").trim().to_owned();
    let ended = run(&client, "-np 2 --conda only-a -- only-there");
    let words = format!(
        "n2: no conda environment 'only-a': it has base, torch2, train (conda at {home}/miniconda3); make it there"
    );
    refused(&ended, 127, &words);
    let ended = run(&client, "-np 1 -H n2:1 --conda torch -- only-there");
    refused(&ended, 127, "or write --conda torch2");
    let ended = run(&client, "-np 1 --conda ~/venv -- only-there");
    refused(&ended, 127, "--venv ~/venv");
}

#[test]
fn a_script_of_an_environment_that_ends_its_shell_refuses_the_run() {
    let Some(cluster) = two() else { return };
    let client = Client::new(cluster);
    cluster.on("n1", "cp -a ~/miniconda3/envs/train ~/bad && echo 'echo no licence here >&2; exit 4' > ~/bad/etc/conda/activate.d/a.sh");
    let ended = run(&client, "-np 1 -H n1:1 --conda ~/bad -- only-there");
    refused(&ended, 127, "no licence here");
}

#[test]
fn environment_modules_are_loaded_or_refused_by_their_own_words() {
    let Some(cluster) = two() else { return };
    if !Path::new("/usr/share/modules/init/sh").exists() {
        skip("environment-modules is not installed");
        return;
    }
    let client = Client::new(cluster);
    for host in ["n1", "n2"] {
        cluster.on(
            host,
            "mkdir -p ~/modulefiles/cuda ~/modulefiles/nccl && \
             printf '#%%Module\nsetenv CUDA_HOME /opt/cuda-12.4\nprepend-path PATH /opt/cuda-12.4/bin\n' > ~/modulefiles/cuda/12.4 && \
             printf '#%%Module\nsetenv NCCL_HOME /opt/nccl\n' > ~/modulefiles/nccl/2.21",
        );
    }
    cluster.on("n2", "rm -r ~/modulefiles/nccl");
    let home = cluster.on("n1", "echo ~").trim().to_owned();
    client.write(
        "hosts.toml",
        &with_keys(cluster, &format!("env = {{ MODULEPATH = \"{home}/modulefiles\" }}")),
    );
    let show = "echo $CUDA_HOME; case $PATH in /opt/cuda-12.4/bin:*) echo first;; esac";
    let ended = run(&client, &format!("-np 2 --module cuda/12.4 -- sh -c '{show}'"));
    assert_eq!(ended.code, 0, "{ended:#?}");
    let lines = ["[0] /opt/cuda-12.4", "[0] first", "[1] /opt/cuda-12.4", "[1] first"];
    assert_eq!(printed(&ended), lines, "{ended:#?}");
    let ended = run(&client, "-np 2 --module cuda,nccl -- true");
    refused(&ended, 127, "n2: ");
    assert!(ended.err.contains("Unable to locate a modulefile for 'nccl'"), "{ended:#?}");
    // all three, one over the other
    let show = "echo $CUDA_HOME $CONDA_DEFAULT_ENV; echo $PATH | cut -d: -f1,2,4";
    let ended = run(&client, &format!("-np 1 --module cuda --conda train --venv ~/venv -- sh -c '{show}'"));
    let path = format!("[0] {home}/venv/bin:{home}/miniconda3/envs/train/bin:/opt/cuda-12.4/bin");
    assert_eq!(printed(&ended), ["[0] /opt/cuda-12.4 train", path.as_str()], "{ended:#?}");
}

/// The hosts with a slot each, and these keys for all of them.
fn with_keys(cluster: &Cluster, keys: &str) -> String {
    cluster.hosts_toml(1).replacen("[defaults]\n", &format!("[defaults]\n{keys}\n"), 1)
}

#[test]
fn the_hosts_file_names_an_environment_and_an_option_counts_before_it() {
    let Some(cluster) = two() else { return };
    let client = Client::new(cluster);
    let recipe = "\n[[recipe]]\nname = \"r\"\ncommand = \"sh -c 'echo $CONDA_DEFAULT_ENV'\"\nnp = 1\nconda = \"base\"\n";
    client.write("hosts.toml", &(with_keys(cluster, "conda = \"train\"") + recipe));
    let ended = run(&client, "-np 1 -- sh -c 'echo $CONDA_DEFAULT_ENV'");
    assert_eq!(printed(&ended), ["[0] train"], "{ended:#?}");
    let ended = run(&client, "-np 1 --conda base -- sh -c 'echo $CONDA_DEFAULT_ENV'");
    assert_eq!(printed(&ended), ["[0] base"], "{ended:#?}");
    let ended = run(&client, "-np 1 --conda none -- sh -c 'echo \"<$CONDA_DEFAULT_ENV>\"'");
    assert_eq!(printed(&ended), ["[0] <>"], "{ended:#?}");
    let ended = run(&client, "--recipe r");
    assert_eq!(printed(&ended), ["[0] base"], "{ended:#?}");
    let ended = run(&client, "-np 2 --module gcc --dry-run -- sh -c true");
    // there is no such module, which the hosts tell where they come to it in time
    assert!([0, 127].contains(&ended.code), "{ended:#?}");
    let words = "load module gcc, activate conda train, resolved on the host";
    assert!(ended.out.contains(words), "{ended:#?}");
}

#[test]
fn what_only_a_login_shell_finds_is_named_and_can_be_had() {
    let Some(cluster) = two() else { return };
    let client = Client::new(cluster);
    let home = cluster.on("n1", "echo ~").trim().to_owned();
    let ended = run(&client, "-np 2 -- horovod-tool");
    refused(&ended, 127, "command 'horovod-tool' not found on n");
    let words = format!(
        "a login shell there finds {home}/tools/horovod-tool: use --env-from-login, or --env PATH={home}/tools:"
    );
    assert!(ended.err.contains(&words), "{ended:#?}");
    let ended = run(&client, "-np 2 --env-from-login -- horovod-tool");
    assert_eq!(ended.code, 0, "{ended:#?}");
    assert_eq!(
        printed(&ended),
        ["[0] tool runs", "[1] tool runs"],
        "the profile's noise is nobody's: {ended:#?}"
    );
    let ended = run(&client, "-np 1 --env-from-login --env MULTI=mine -- sh -c 'echo $MULTI $LOGIN_SECRET'");
    assert_eq!(printed(&ended), ["[0] mine canary-77aa"], "{ended:#?}");
    let ended = run(&client, "-np 1 --env-from-login -- sh -c 'echo \"$MULTI\"'");
    assert_eq!(ended.out, "[0] a\n[0] b\n", "{ended:#?}");
}

#[test]
fn what_a_login_environment_holds_is_in_no_file() {
    let Some(cluster) = two() else { return };
    let client = Client::new(cluster);
    // its value is on no command line either: a command is kept with its run
    let look = "test -n $LOGIN_SECRET && echo has; grep -rlF $LOGIN_SECRET ~/.local ~/.cache 2>/dev/null; echo looked";
    let line = format!("-np 2 --env-from-login --max-restarts 1 -- sh -c '{look}'");
    let ended = run(&client, &line);
    assert_eq!(ended.code, 0, "{ended:#?}");
    assert_eq!(printed(&ended), ["[0] has", "[0] looked", "[1] has", "[1] looked"], "{ended:#?}");
    for host in ["n1", "n2"] {
        // files may go meanwhile, of which grep complains
        let line = "ls -d ~ /run /dev/shm >/dev/null || exit; grep -rl canary-77aa ~ /run /dev/shm 2>/dev/null; true";
        let found = cluster.surely_on(host, line);
        let (profile, others): (Vec<&str>, Vec<&str>) =
            found.lines().partition(|file| file.ends_with("/.profile"));
        assert!(profile.len() == 1 && others.is_empty(), "on {host}: {found}");
    }
    let own =
        std::process::Command::new("grep").args(["-rl", "canary-77aa"]).arg(client.path("")).output_in_time();
    assert_eq!(String::from_utf8_lossy(&own.expect("grep").stdout), "", "nor here");
}

#[test]
fn every_attempt_finds_the_environment() {
    let Some(cluster) = two() else { return };
    let client = Client::new(cluster);
    let line = "-np 2 --max-restarts 1 --conda train -- sh -c 'echo $HVTUI_RESTART $CONDA_DEFAULT_ENV; test $HVTUI_RESTART = 1 || exit 3'";
    let ended = run(&client, line);
    assert_eq!(ended.code, 0, "{ended:#?}");
    for line in ["[0] 0 train", "[0] 1 train", "[1] 1 train"] {
        assert!(ended.out.lines().any(|one| one == line), "{line}: {ended:#?}");
    }
}

#[test]
fn a_profile_that_hangs_or_ends_its_shell_refuses_the_run() {
    let Some(cluster) = Cluster::ready(1, &[]) else { return };
    let client = Client::new(&cluster);
    cluster.on("n1", "rm -f ~/.bash_profile ~/.bash_login; echo 'echo contacting licence server >&2; sleep 600' > ~/.profile");
    let ended = run(&client, "-np 1 --env-from-login -- true");
    refused(&ended, 127, "n1: login shell ");
    assert!(
        ended.err.contains("does not end within 10 s") && ended.err.contains("contacting licence server"),
        "{ended:#?}"
    );
    cluster.assert_none("n1", &["sleep"]);
    cluster.on("n1", "echo 'echo out of quota >&2; exit 3' > ~/.profile");
    let ended = run(&client, "-np 1 --env-from-login -- true");
    refused(&ended, 127, "n1: login shell ");
    assert!(ended.err.contains("exit status: 3") && ended.err.contains("out of quota"), "{ended:#?}");
    // what an interactive shell alone has is taken where it is asked for
    cluster.on("n1", ": > ~/.profile; printf '[ -z \"$PS1\" ] && return\nexport ONLY_INTERACTIVE=1 PATH=$HOME/bin:$PATH\n' > ~/.bashrc");
    cluster.on("n1", "echo '. ~/.bashrc' > ~/.profile; mkdir -p ~/bin; printf '#!/bin/sh\necho found\n' > ~/bin/tool; chmod 755 ~/bin/tool");
    let ended = run(&client, "-np 1 --env-from-login -- tool");
    refused(&ended, 127, "use --env-from-login=interactive");
    let ended = run(&client, "-np 1 --env-from-login=interactive -- sh -c 'tool; echo $ONLY_INTERACTIVE'");
    assert_eq!(printed(&ended), ["[0] 1", "[0] found"], "{ended:#?}");
}

/// The hosts, a person and the home folder on the hosts, where there is an mpirun; else that is said.
fn with_mpirun() -> Option<(&'static Cluster, Client<'static>, String)> {
    let cluster = two()?;
    if !Path::new("/usr/bin/mpirun").exists() {
        skip("mpirun is not installed");
        return None;
    }
    let home = cluster.on("n1", "echo ~").trim().to_owned();
    Some((cluster, Client::new(cluster), home))
}

#[test]
fn mpirun_starts_the_python_of_the_venv_on_both_hosts() {
    let Some((_, client, home)) = with_mpirun() else { return };
    let show =
        "import os, sys; print(os.environ['OMPI_COMM_WORLD_RANK'], os.environ['HVTUI_HOST'], sys.prefix)";
    let lines = [format!("[0] 0 n1 {home}/venv"), format!("[1] 1 n2 {home}/venv")];
    for line in [
        format!("--kind mpi -np 2 -H n1:1,n2:1 --venv ~/venv -- python -c \"{show}\""),
        format!("--venv ~/venv -- mpirun -np 2 -H n1:1,n2:1 --allow-run-as-root python -c \"{show}\""),
        format!(
            "--venv ~/venv --delegate -- mpirun -np 2 -H n1:1,n2:1 --allow-run-as-root python -c \"{show}\""
        ),
    ] {
        let ended = run(&client, &line);
        assert_eq!(ended.code, 0, "{ended:#?}");
        assert_eq!(printed(&ended), lines, "{line}: {ended:#?}");
    }
}

/// An `mpirun` in the folder `$1` that leaves a mark and is the system's else.
const OWN_MPIRUN: &str = r#"
set -e
mkdir -p "$1"
printf '#!/bin/sh\necho here >> %s/used\nexec /usr/bin/mpirun "$@"\n' "$1" > "$1/mpirun"
chmod 755 "$1/mpirun"
"#;

#[test]
fn a_pasted_mpirun_behind_an_environment_is_that_of_the_environment() {
    let Some((cluster, client, home)) = with_mpirun() else { return };
    let uv = r#"mkdir -p ~/uv/bin; printf '#!/bin/sh\nshift\nexport PATH=$HOME/uv/venv/bin:$PATH\nexec "$@"\n' > ~/uv/bin/uv; chmod 755 ~/uv/bin/uv"#;
    cluster.on("n1", uv);
    let path = format!("--env PATH={home}/uv/bin:/usr/bin:/bin");
    let mpirun = "mpirun -np 1 -H n1:1 --allow-run-as-root sh -c 'echo in $CONDA_DEFAULT_ENV'";
    for (folder, line, says) in [
        ("miniconda3/envs/train/bin", format!("-- conda run -n train {mpirun}"), "[0] in train"),
        ("uv/venv/bin", format!("{path} -- uv run {mpirun}"), "[0] in"),
    ] {
        let folder = format!("{home}/{folder}");
        cluster.on("n1", &format!("set -- {folder}\n{OWN_MPIRUN}"));
        let ended = run(&client, &line);
        assert_eq!((ended.code, printed(&ended)), (0, vec![says.to_owned()]), "{line}: {ended:#?}");
        let used = cluster.on("n1", &format!("cat {folder}/used; rm {folder}/used {folder}/mpirun"));
        assert!(used.contains("here"), "{line}: {used}");
    }
}

#[test]
fn limits_are_set_or_refused_with_the_hosts_own() {
    let Some(cluster) = two() else { return };
    let client = Client::new(cluster);
    let hard: u64 = cluster.on("n1", "ulimit -Hn").trim().parse().expect("a number");
    let ended = run(&client, "-np 2 --ulimit nofile=2048,core=0 -- sh -c 'ulimit -n; ulimit -c'");
    assert_eq!(printed(&ended), ["[0] 0", "[0] 2048", "[1] 0", "[1] 2048"], "{ended:#?}");
    // without a word: what the host allows, up to a number that old programs still bear
    let ended = run(&client, "-np 1 -- sh -c 'ulimit -n'");
    assert_eq!(printed(&ended), [format!("[0] {}", hard.min(65_536))], "{ended:#?}");
    let ended = run(&client, "-np 1 --ulimit nofile=2147483647 -- true");
    refused(&ended, 127, "--ulimit nofile=2147483647");
    assert!(ended.err.contains("n1: ") || ended.err.contains("n2: "), "{ended:#?}");
    assert!(ended.err.contains(&format!("{hard}")), "both numbers are told: {ended:#?}");
    let ended = run(&client, "-np 1 --ulimit nofiles=3 -- true");
    refused(&ended, 64, "nofile");
}

#[test]
fn a_shared_library_that_is_missing_is_named_as_the_cause() {
    let Some(cluster) = two() else { return };
    let client = Client::new(cluster);
    let line = r#"-np 1 -- sh -c 'echo "x: error while loading shared libraries: libnot.so.3: cannot open shared object file: No such file" >&2; exit 127'"#;
    let ended = run(&client, line);
    assert_eq!(ended.code, 127, "{ended:#?}");
    assert!(ended.err.contains("libnot.so.3 is not found (LD_LIBRARY_PATH is not set)"), "{ended:#?}");
    assert!(ended.err.contains("--env-from-login"), "{ended:#?}");
}

#[test]
fn torchrun_starts_the_python_of_the_venv_on_both_hosts() {
    let Some(cluster) = two() else { return };
    if !has_torch() {
        return;
    }
    let client = Client::new(cluster);
    let home = cluster.on("n1", "echo ~").trim().to_owned();
    for host in ["n1", "n2"] {
        cluster.on(host, "/usr/bin/python3 -m venv --without-pip --system-site-packages ~/torch");
        cluster.on(
            host,
            "echo 'import os, sys; print(os.environ[\"RANK\"], os.uname().nodename, sys.prefix)' > ~/show.py",
        );
    }
    let lines = [format!("[0] 0 n1 {home}/torch"), format!("[1] 1 n2 {home}/torch")];
    for line in [
        "--kind torch -np 2 -H n1:1,n2:1 --venv ~/torch -- python show.py",
        "--delegate --kind torch -H n1:1,n2:1 --venv ~/torch -- python show.py",
        "--delegate -H n1:1,n2:1 --venv ~/torch -- python -m torch.distributed.run --nnodes=2 --nproc_per_node=1 show.py",
    ] {
        let ended = run(&client, line);
        assert_eq!(ended.code, 0, "{ended:#?}");
        assert_eq!(printed(&ended), lines, "{line}: {ended:#?}");
    }
}

#[test]
fn what_horovodrun_would_write_on_command_lines_is_not_taken_from_a_login() {
    let Some(cluster) = two() else { return };
    let client = Client::new(cluster);
    let ended =
        run(&client, "--env-from-login -- horovodrun -np 2 -H n1:1,n2:1 --config-file x python3 x.py");
    refused(&ended, 64, "may hold secrets, and horovodrun writes its whole environment on command lines");
}

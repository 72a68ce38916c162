//! Programs of Windows under Wine.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use serde_json::{Value, json};
use testkit::scoped::Directory;

/// Folder of Wine's programs.
const PROGRAMS: &str = "/usr/lib/wine";

/// Environment variable with the folder of the program for Windows and its libraries.
const FOLDER: &str = "VIPLINE_WINDOWS_PROGRAM";

/// Name of the file with the Event Log, and with the errors of programs.
const LOG: &str = "log";

/// Key of the registry with the environment of services.
const ENVIRONMENT: &str = r"HKLM\SYSTEM\CurrentControlSet\Control\Session Manager\Environment";

/// An installation of Wine, with HNS in a file.
pub(crate) struct Wine {
    folder: Directory,
    program: PathBuf,
    /// Wine ends its services when no program runs: the shell waits for input.
    _shell: Option<(Running, ChildStdin)>,
}

/// A running program, killed on drop.
pub(crate) struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Wine {
    /// Creates an installation, which has 700 MB.
    pub(crate) fn start() -> Self {
        let mut wine = Self {
            folder: Directory::new().unwrap(),
            program: std::env::var_os(FOLDER).expect(FOLDER).into(),
            _shell: None,
        };
        wine.reset();
        let words = |line: &str| line.split('|').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(wine.run("wineboot", &words("-i")).0, 0);
        let state = windows(&wine.state());
        let set = words(&format!("add|{ENVIRONMENT}|/v|HNS_STATE|/d|{state}|/f"));
        assert_eq!(wine.run("reg", &set).0, 0);
        // Services have the environment of the next start.
        wine.end();
        let mut command = wine.command("cmd.exe", &[]);
        let mut shell = command.stdin(Stdio::piped()).spawn().unwrap();
        let input = shell.stdin.take().unwrap();
        wine._shell = Some((Running(shell), input));
        wine
    }

    /// Removes all objects of HNS except for the network `cbr0`.
    pub(crate) fn reset(&self) {
        let network = json!({
            "ID": "A0000000-0000-0000-0000-000000000001",
            "Name": "cbr0",
            "Type": "L2Bridge",
        });
        let state = json!({ "Version": { "Major": 15, "Minor": 4 }, "Networks": [network] });
        fs::write(self.state(), state.to_string()).unwrap();
    }

    /// Returns the lines of the Event Log, and of programs.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join(LOG)).unwrap()
    }

    /// Writes a file, and returns its path for programs of Windows.
    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        self.folder.write(name, text).unwrap();
        windows(&self.folder.path().join(name))
    }

    /// Returns the path of a file beside the program.
    pub(crate) fn path(&self, name: &str) -> String {
        windows(&self.program.join(name))
    }

    /// Starts a program.
    pub(crate) fn spawn(&self, program: &str, words: &[String]) -> Running {
        Running(self.command(program, words).spawn().unwrap())
    }

    /// Runs a program, and returns its exit code and its output.
    pub(crate) fn run(&self, program: &str, words: &[String]) -> (i32, String) {
        // Wine's services inherit the files, so that a pipe would not end.
        let output = self.folder.path().join("output");
        let mut command = self.command(program, words);
        command.stdout(File::create(&output).unwrap());
        let code = command.status().unwrap().code();
        (code.unwrap_or(-1), fs::read_to_string(output).unwrap())
    }

    /// Changes the state of HNS, as another program does.
    pub(crate) fn change(&self, work: impl FnOnce(&mut Value)) {
        let mut state = self.hns();
        work(&mut state);
        let draft = self.folder.path().join("draft.json");
        fs::write(&draft, state.to_string()).unwrap();
        fs::rename(draft, self.state()).unwrap();
    }

    /// Returns the addresses of load balancers.
    pub(crate) fn frontends(&self) -> Vec<String> {
        let state = self.hns();
        let balancers = state["LoadBalancers"].as_array().into_iter().flatten();
        let frontends = balancers.filter_map(|it| it["FrontendVIPs"][0].as_str());
        let mut frontends: Vec<_> = frontends.map(str::to_owned).collect();
        frontends.sort();
        frontends
    }

    fn hns(&self) -> Value {
        serde_json::from_slice(&fs::read(self.state()).unwrap()).unwrap()
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("hns.json")
    }

    fn log_file(&self) -> File {
        let mut options = File::options();
        let path = self.folder.path().join(LOG);
        options.create(true).append(true).open(path).unwrap()
    }

    fn command(&self, program: &str, words: &[String]) -> Command {
        let mut command = Command::new(Path::new(PROGRAMS).join("wine64"));
        command
            .arg(program)
            .args(words)
            .current_dir(&self.program)
            .env("WINEPREFIX", self.folder.path().join("wine"))
            // Wine writes the lines of the Event Log to stderr.
            .env("WINEDEBUG", "-all,+eventlog")
            // Without them, Wine offers to install .NET and a browser.
            .env("WINEDLLOVERRIDES", "mscoree=;mshtml=")
            .env_remove("DISPLAY")
            .env("HNS_STATE", windows(&self.state()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(self.log_file());
        command
    }

    /// Ends all programs.
    fn end(&self) {
        for option in ["-k", "-w"] {
            let mut command = Command::new(Path::new(PROGRAMS).join("wineserver64"));
            command.env("WINEPREFIX", self.folder.path().join("wine"));
            let _ = command.arg(option).stderr(Stdio::null()).status();
        }
    }
}

impl Drop for Wine {
    fn drop(&mut self) {
        self.end();
    }
}

/// Returns the path of a file for programs of Windows.
fn windows(path: &Path) -> String {
    format!("Z:{}", path.display()).replace('/', "\\")
}

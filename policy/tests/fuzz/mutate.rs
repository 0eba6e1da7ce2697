//! Scripts: seeds with canaries in every construct, and mutations of them.

use super::cage::CANARIES;

/// xorshift64*: small, fixed, and the same everywhere.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 33) as usize % limit.max(1)
    }

    fn pick<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len())]
    }
}

/// `@` stands for a canary with words.
const SEEDS: &[&str] = &[
    "@",
    "@; @",
    "@ && @",
    "@ || @",
    "@ | @",
    "@ & @",
    "@\n@",
    "! @",
    "( @ )",
    "{ @; }",
    "time @",
    "if @; then @; fi",
    "if @; then @; elif @; then @; else @; fi",
    "while @; do break; done",
    "until @; do @; done",
    "for x in a b; do @; done",
    "for x in $(@); do echo $x; done",
    "case x in x) @;; *) @;; esac",
    "case $(@) in (a|b) @;; esac",
    "f() { @; }; f",
    "function g { @; }; g",
    "echo $(@)",
    "echo `@`",
    "echo \"$(@)\"",
    "echo \"a `@` b\"",
    "cat <(@)",
    "echo x > >(@)",
    "cat <<E\n$(@)\nE",
    "cat <<'E'\n$(@)\nE",
    "cat <<-E\n\tx\n\tE\n@",
    "cat <<E; @\nx\nE",
    "cat <<E | @\nx\nE",
    "cat <<< $(@)",
    "echo ${x:-$(@)}",
    "echo ${x:=`@`}",
    "echo \"${x:+$(@)}\" @",
    "echo $((1 + 2)); @",
    "echo $(( $(@) ))",
    "(( $(@) ))",
    "((1)); @",
    "[[ a == $(@) ]]; @",
    "[[ -f x || -n $(@) ]]",
    "[ -n \"$(@)\" ]",
    "test $(@)",
    "x=$(@)",
    "x=1 @",
    "x=`@` y=2 @",
    "env @",
    "env A=1 @",
    "timeout 1 @",
    "nice -n 1 @",
    "nohup @",
    "setsid -w @",
    "stdbuf -o0 @",
    "command @",
    "builtin command @",
    "exec @",
    "eval '@'",
    "echo x | xargs @",
    "find /in/driver -exec @ \\;",
    "bash -c '@'",
    "trap '@' EXIT",
    "trap '@; @' EXIT; @",
    "trap -- 'c1 a b' 0",
    "trap 'c1 $x' EXIT; x=a",
    "bash -c '@; @'",
    "bash -ec 'c1 a | c2 \"b\"'",
    "bash -c 'for x in a b; do c1 $x; done'",
    "bash -c \"c1 $x\"",
    "sh -c 'c1 a; c2 b'",
    "sh -c \"c1 'a b'\" @",
    "sh -c 'c1 {a,b}'",
    "bash -c 'trap \"c1 a\" EXIT'",
    "for x in a b; do c1 $x; done",
    "for x in a b; do c1 \"$x\" ${x}c \"${x}/d\"; done",
    "for x in /in/* b; do c1 \"$x\"; c2 $x; done",
    "for x in a b; do for y in c d; do c1 \"$x\" y$y; done; done",
    "for x in a; do x=b; c1 $x; done",
    "for x in a; do read x <<< b; c1 $x; done",
    "for x in a b; do :; done; c1 $x \"$x\"",
    "c1 $x; for x in a b; do c2 q; done; c1 \"$x\"",
    "i=0; while [ $i -lt 2 ]; do @; i=$((i+1)); done",
    "for x in c1 c2; do $x a; done",
    "for x in a b; do echo $(c1 $x); done",
    "coproc @; wait",
    "select x in a; do @; done <<< 1",
    "@ > out",
    "@ 2>&1",
    "> out @",
    "@ < /dev/null",
    "@ >&2 &",
    "{ @; } > out 2>&1",
    "{ @ & } ; wait",
    "@ # comment",
    "# comment\n@",
    "echo a#b; @",
    "@ \\\n  more",
    "'c1' q",
    "c\\1 q",
    "c\"1\" q",
    "$'c1' q",
    "c''1 q",
    "{c1,q}",
    "c1 {a,b}",
    "c1 {1..3}",
    "c1 $'a\\nb'",
    "c1 'a b' \"c d\" e\\ f",
    "c1 \"a\\\"b\" 'it'\\''s'",
    "c1 ~/x ~",
    "c1 \"~\" '~/x'",
    "c1 $HOME/x",
    "c1 \"$HOME\"/y",
    "c1 *",
    "echo \"$(echo \"$(@)\")\"",
    "echo $(echo `@`)",
    "echo `echo \\`@\\``",
    "a=(@ b); ${a[@]}",
    "a[$(@)]=1",
    "declare x=$(@)",
    "export x=$(@); @",
    "local x=1 || @",
    "printf -v x y; @",
    "let x=1; @",
    "set -- @; \"$@\"",
    "alias c9=c1; @",
    "shopt -s extglob\n@",
    "echo @(a|b); @",
    "if [[ x =~ (a|x) ]]; then @; fi",
    "for ((i=0; i<2; i++)); do @; done",
    "echo ${#x} ${x%%y} ${x/a/b}; @",
    "echo \"${x}\" '${y}'; @",
    "while read -r l; do @; done <<< x",
    "@ |& @",
    "@ && { @ || @; } && ( @; @ )",
    "echo $(<out); @",
    "cat <<A <<B\n$(@)\nA\n@\nB",
    "cat <<\"E\"\n@\nE\n@",
    "cat << E\n`@`\nE",
    "echo 'a\nb'; @",
    "echo \"a\nb\" @\n@",
    "git commit -m \"$(cat <<'E'\n@\nE\n)\"; @",
    "true; { @; @; }",
    "false || @",
];

const TOKENS: &[&str] = &[
    "'",
    "\"",
    "`",
    "\\",
    "$",
    "$(",
    "${",
    "$((",
    "))",
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    "[[",
    "]]",
    ";",
    "&",
    "|",
    "&&",
    "||",
    "\n",
    " ",
    "\t",
    "#",
    "<",
    ">",
    "<<",
    ">>",
    "<(",
    "<<<",
    "<<E\n",
    "\nE\n",
    "!",
    "*",
    "?",
    "~",
    "=",
    ",",
    "..",
    "if ",
    "then ",
    "fi",
    "do ",
    "done",
    "in ",
    "case ",
    "esac",
    ";;",
    "\\\n",
    "$'",
    "$\"",
    "@",
    "-",
    "x",
    "c1 ",
    "c2 a",
    "echo ",
    "\\c1 ",
    "'c1' ",
    ";c3 z;",
    "$x",
    "${x}",
    "\"$x\"",
    "a=1 ",
    "time ",
    "! ",
    "& ",
    "|& ",
    "2>&1 ",
    "> out ",
    "{a,b}",
    "$(c1 n)",
    "`c2 n`",
    "env ",
    "env A=1 ",
    "timeout 1 ",
    "nice ",
    "-n 1 ",
    "command ",
    "exec ",
    "-- ",
    "xargs ",
    "#\n",
    "coproc ",
    "function f ",
    "f() ",
    "&>",
    ">|",
    "<&-",
    "\\ ",
    "\\\"",
    "\\'",
    "\\$",
    "\\`",
    "''",
    "\"\"",
    "; ",
    "\n\n",
    "((",
    "$[",
    "esac\n",
    "\r",
    "%",
    "+",
    ":",
    "^",
];

const WORDS: &[&str] = &[
    "",
    " a",
    " 'b c'",
    " \"d\"",
    " -x",
    " e\\ f",
    " --g=h",
    " i j",
    " \"k l\" m",
    " n/o",
    " $'p'",
];

fn canary(random: &mut Random) -> String {
    let mut text = random.pick(&CANARIES).to_owned();
    for _ in 0..random.below(3) {
        text.push_str(random.pick(WORDS));
    }
    text
}

fn seed(random: &mut Random) -> String {
    let mut text = String::new();
    for piece in random.pick(SEEDS).split_inclusive('@') {
        // `$@` and `[@]` are the shell's own.
        match piece.strip_suffix('@') {
            Some(before) if !before.ends_with(['"', '[', '$']) && !piece.ends_with(" @(a") => {
                text.push_str(before);
                text.push_str(&canary(random));
            }
            _ => text.push_str(piece),
        }
    }
    text
}

fn boundary(text: &str, at: usize) -> usize {
    (0..=at)
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0)
}

/// One script.
pub fn script(random: &mut Random) -> String {
    let mut text = seed(random);
    for _ in 0..random.below(3) {
        let other = seed(random);
        let joint = random.pick(&["; ", "\n", " && ", " | ", " ", " & ", "\n\n"]);
        text = format!("{text}{joint}{other}");
    }
    let mutations = random.below(4);
    for _ in 0..mutations {
        let at = random.below(text.len() + 1);
        let at = boundary(&text, at);
        match random.below(6) {
            0 | 1 => text.insert_str(at, random.pick(TOKENS)),
            2 => {
                let end = at + random.below(4);
                let end = boundary(&text, end.min(text.len()));
                text.replace_range(at..end.max(at), "");
            }
            3 => {
                let end = at + random.below(12);
                let end = boundary(&text, end.min(text.len())).max(at);
                let piece = text[at..end].to_owned();
                let to = random.below(text.len() + 1);
                let to = boundary(&text, to);
                text.insert_str(to, &piece);
            }
            4 => {
                let end = at + random.below(3);
                let end = boundary(&text, end.min(text.len())).max(at);
                text.replace_range(at..end, random.pick(TOKENS));
            }
            _ => {
                let open =
                    random.pick(&["$(", "(", "{ ", "\"", "'", "`", "${x:-", "<(", "$((", "[[ "]);
                let close = match open {
                    "$(" | "(" | "<(" => ")",
                    "{ " => "; }",
                    "${x:-" => "}",
                    "$((" => "))",
                    "[[ " => " ]]",
                    other => other,
                };
                let end = at + random.below(text.len() + 1 - at);
                let end = boundary(&text, end);
                text.insert_str(end.max(at), close);
                text.insert_str(at, open);
            }
        }
    }
    text
}

//! What can be told of a Metal shader from its text: its kernels, their arguments, and mistakes that
//! a C++ compiler does not see.
//!
//! It reads the part of the language that kernels.metal uses: structures of 32-bit unsigned
//! integers, kernels that return nothing, one attribute an argument.

/// Attributes that an argument may have besides `buffer(N)`.
const ATTRIBUTES: [&str; 2] = ["thread_position_in_grid", "threads_per_grid"];

/// Address spaces that an argument may point to.
const SPACES: [&str; 3] = ["device", "constant", "threadgroup"];

/// A kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// What must be bound, by index.
    pub arguments: Vec<Argument>,
}

/// An argument that is bound.
#[derive(Clone, Debug, PartialEq)]
pub struct Argument {
    /// Its name.
    pub name: String,
    /// N of `[[buffer(N)]]`.
    pub index: usize,
    /// Bytes of what it refers to, for a structure; `None` for memory of any length.
    pub structure: Option<usize>,
    /// True if the kernel may write there.
    pub written: bool,
}

/// The kernels of a source.
///
/// # Errors
/// The mistakes in it, one a line.
pub fn kernels(source: &str) -> Result<Vec<Kernel>, String> {
    let source = without_comments(source);
    let (mut kernels, mut mistakes) = (Vec::new(), Vec::new());
    for part in source.split("kernel ").skip(1) {
        match kernel(part, &source) {
            Ok(kernel) => kernels.push(kernel),
            Err(found) => mistakes.extend(found),
        }
    }
    if kernels.is_empty() && mistakes.is_empty() {
        mistakes.push("there is no kernel".to_owned());
    }
    if mistakes.is_empty() { Ok(kernels) } else { Err(mistakes.join("\n")) }
}

fn without_comments(source: &str) -> String {
    let lines = source.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// The kernel that begins with its return type.
fn kernel(part: &str, source: &str) -> Result<Kernel, Vec<String>> {
    let (head, rest) = part.split_once('(').ok_or_else(|| vec!["a kernel has no (".to_owned()])?;
    let name = head.trim().strip_prefix("void ").unwrap_or_default().trim().to_owned();
    let say = |what: String| format!("kernel `{name}`: {what}");
    let mut mistakes = Vec::new();
    if name.is_empty() {
        mistakes.push(say(format!("`{}` does not return void", head.trim())));
    }
    let list = rest.split('{').next().unwrap_or_default().trim().trim_end_matches(')');
    let (mut arguments, mut has_position) = (Vec::<Argument>::new(), false);
    for text in list.split(',').map(str::trim).filter(|text| !text.is_empty()) {
        match argument(text, source) {
            Ok(Some(new)) => {
                if let Some(old) = arguments.iter().find(|old| old.index == new.index) {
                    let (old, index) = (&old.name, new.index);
                    mistakes
                        .push(say(format!("`{old}` and `{}` are both buffer({index})", new.name)));
                }
                arguments.push(new);
            }
            Ok(None) => has_position |= text.contains(ATTRIBUTES[0]),
            Err(what) => mistakes.push(say(what)),
        }
    }
    if !has_position {
        mistakes.push(say(format!("no argument has [[{}]]", ATTRIBUTES[0])));
    }
    if mistakes.is_empty() { Ok(Kernel { name, arguments }) } else { Err(mistakes) }
}

/// An argument: bound, or given by the GPU (`None`).
fn argument(text: &str, source: &str) -> Result<Option<Argument>, String> {
    let (declaration, attribute) =
        text.split_once("[[").ok_or_else(|| format!("`{text}` has no attribute"))?;
    let attribute = attribute.trim_end_matches("]]").trim();
    let mut words = declaration.split([' ', '*', '&']).filter(|word| !word.is_empty());
    let first = words.next().unwrap_or_default();
    let name = declaration.split([' ', '*', '&']).rfind(|word| !word.is_empty());
    let name = name.unwrap_or_default().to_owned();
    let Some(index) = attribute.strip_prefix("buffer(") else {
        return match ATTRIBUTES.contains(&attribute) {
            true => Ok(None),
            false => Err(format!("`{name}` has an unknown attribute [[{attribute}]]")),
        };
    };
    let index = index.trim_end_matches(')').parse().map_err(|_| format!("`{attribute}`"))?;
    if !SPACES.contains(&first) {
        return Err(format!("`{name}` is bound and in no address space ({})", SPACES.join(", ")));
    }
    let refers = declaration.contains('&');
    let kind = words.find(|word| *word != "const").unwrap_or_default();
    let structure = refers.then(|| structure(kind, source)).transpose()?;
    let written = first == "device" && !declaration.contains("const ");
    Ok(Some(Argument { name, index, structure, written }))
}

/// Bytes of a structure of 32-bit integers.
fn structure(name: &str, source: &str) -> Result<usize, String> {
    let begin = format!("struct {name} {{");
    let body = source.split(&begin).nth(1).and_then(|rest| rest.split('}').next());
    let body = body.ok_or_else(|| format!("there is no struct `{name}`"))?;
    let fields = body.split(';').map(str::trim).filter(|field| !field.is_empty());
    let fields: Vec<_> = fields.collect();
    match fields.iter().find(|field| !field.starts_with("uint ")) {
        Some(field) => Err(format!("struct `{name}`: `{field}` is no uint")),
        None => Ok(4 * fields.len()),
    }
}

//! `everwarm lab figures`.

use super::{device, read};
use crate::bench::bar;
use crate::output::{print, print_json, write_whole};
use everwarm_lab::{Axis, Figure, Figures, Panel, Point};
use everwarm_report::{Plot, PlotAxis, PlotBox, PlotCurve, PlotPanel, plot};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;

/// Draws what a device does over what a study says it should.
///
/// Each figure becomes an SVG file, `model-NAME.svg`. Which figures there are, how curves are measured
/// and what they are held against stands in a file (crates/lab/figures/m2.toml is the built-in one).
#[derive(clap::Args)]
#[command(after_help = "Examples:
  everwarm lab figures -o figures
  everwarm lab figures -o figures --device sim:my-chip.toml --only ramp
  everwarm lab figures --json --only gap-cliff")]
pub(super) struct Args {
    /// The figures file [default: the figures of the M2 study].
    #[arg(value_name = "FIGURES.toml")]
    figures: Option<PathBuf>,
    /// The folder of the images; files of the same names are replaced.
    #[arg(short, long, value_name = "DIR", required_unless_present = "json")]
    output: Option<PathBuf>,
    /// The device, such as sim:m2 [default: the first real device, else sim:m2].
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Only the figures whose name fits, such as 'gap-*'.
    #[arg(long, value_name = "GLOB")]
    only: Option<String>,
    /// Print the curves and marks as JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut figures = match &args.figures {
        None => Figures::built_in(),
        Some(path) => Figures::from_toml(&path.display().to_string(), &read(path, "figures")?)?,
    };
    if let Some(glob) = &args.only {
        figures.figures.retain(|one| everwarm_lab::fits(glob, &one.name));
        anyhow::ensure!(!figures.figures.is_empty(), "no figure's name fits `{glob}`");
    }
    if let Some(folder) = &args.output {
        anyhow::ensure!(folder.is_dir(), "there is no folder `{}`", folder.display());
    }
    let device = device(args.device);
    let bar = bar(figures.figures.len() as u64, args.json);
    let mut documents = Vec::new();
    let mut written = String::new();
    for figure in &figures.figures {
        let points = figure.points(&device)?;
        if let Some(folder) = &args.output {
            let path = folder.join(format!("model-{}.svg", figure.name));
            write_whole(&path, plot(&drawn(figure, &points, &device)).as_bytes(), true)?;
            written += &format!("{}\n", path.display());
        }
        documents.push(document(figure, &points));
        bar.inc(1);
    }
    bar.finish_and_clear();
    match args.json {
        true => print_json(&json!({ "device": device, "figures": documents }))?,
        false => print(&written)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn drawn(figure: &Figure, points: &[Vec<Vec<Point>>], device: &str) -> Plot {
    let panels = figure.panels.iter().zip(points).map(|(panel, points)| drawn_panel(panel, points));
    let note = format!("lines: {device}; boxes: what the study measured, with its tolerance");
    Plot { title: figure.title.clone(), note, panels: panels.collect() }
}

fn drawn_panel(panel: &Panel, points: &[Vec<Point>]) -> PlotPanel {
    let axis = |axis: &Axis| {
        let label = match axis.unit.name {
            "1" | "P" => axis.label.clone(),
            unit => format!("{}, {unit}", axis.label),
        };
        PlotAxis { label, log: axis.log, ends: axis.ends }
    };
    let curves = panel
        .curves
        .iter()
        .zip(points)
        .map(|(curve, points)| PlotCurve { label: curve.label.clone(), points: points.clone() });
    let boxes = panel.marks.iter().map(|mark| PlotBox {
        x: mark.x,
        y: mark.y,
        curve: mark.curve,
        title: mark.source.clone(),
    });
    PlotPanel {
        x: axis(&panel.x),
        y: axis(&panel.y),
        curves: curves.collect(),
        boxes: boxes.collect(),
    }
}

fn document(figure: &Figure, points: &[Vec<Vec<Point>>]) -> Value {
    let panel = |(panel, points): (&Panel, &Vec<Vec<Point>>)| {
        let curves = panel.curves.iter().zip(points);
        let mark = |mark: &everwarm_lab::Mark| json!({ "x": mark.x, "y": mark.y, "curve": mark.curve, "source": mark.source });
        json!({
            "x": { "label": panel.x.label, "unit": panel.x.unit.name },
            "y": { "label": panel.y.label, "unit": panel.y.unit.name },
            "curves": curves.map(|(one, points)| json!({ "label": one.label, "points": points })).collect::<Vec<_>>(),
            "marks": panel.marks.iter().map(mark).collect::<Vec<_>>(),
        })
    };
    let panels: Vec<_> = figure.panels.iter().zip(points).map(panel).collect();
    json!({ "name": figure.name, "title": figure.title, "panels": panels })
}

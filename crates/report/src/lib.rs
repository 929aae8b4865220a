//! Results of a TTFT bench as one self-contained HTML page, and as a picture.
//!
//! It reads the JSON that `everwarm demo --json` and `everwarm ttft --json` print, so that a page can
//! be made again from a saved result. The page needs nothing but itself: no script, no font, no
//! server; it follows the reader's light or dark theme and fits a phone. Equal results give equal
//! bytes.
//!
//! Beside that it draws curves over what is expected of them ([`plot`]).
//!
//! It measures nothing and opens no file. A row that is not valid has no bar: its reason stands there.

#![forbid(unsafe_code)]

mod chart;
mod markup;
mod model;
mod page;
mod picture;
mod plot;
mod story;

pub use model::{Error, Results, Row, Run};
pub use page::{GENERATOR, page};
pub use picture::picture;
pub use plot::{Plot, PlotAxis, PlotBox, PlotCurve, PlotPanel, plot};
pub use story::{Story, story};

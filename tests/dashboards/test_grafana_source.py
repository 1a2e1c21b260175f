"""What Grafana makes of the options of panels, by its own source; nothing here runs a Grafana.

Read in 10.4, 11.6, 12 and 13: public/app/core/components/TimelineChart/utils.ts, packages/grafana-ui/src/
components/uPlot/config/UPlotAxisBuilder.ts, public/app/features/transformers/calculateHeatmap/heatmap.ts.
"""

from __future__ import annotations

from dashboards.documents import dashboards, every_panel, fields

PANELS = {
    f"{uid}: {panel['title']}": panel
    for uid, dashboard in dashboards().items()
    for panel in every_panel(dashboard)
    if "fieldConfig" in panel
}


def test_states_of_a_timeline_keep_their_words() -> None:
    """`prepareTimelineFields` replaces values by labels of thresholds if they are coloured by thresholds."""
    timelines = {name: panel for name, panel in PANELS.items() if panel["type"] == "state-timeline"}
    assert len(timelines) >= 2
    for name, panel in timelines.items():
        assert panel["options"]["mergeValues"], name
        assert panel["fieldConfig"]["defaults"]["color"]["mode"] == "fixed", name


def test_axes_of_shares_have_labels_between_0_and_1() -> None:
    """With `decimals: 0` an axis labels whole numbers only, which for a share are 0 % and 100 %."""
    assert [
        name
        for name, panel in PANELS.items()
        for _, properties in fields(panel)
        if panel["type"] == "timeseries"
        and {**panel["fieldConfig"]["defaults"], **properties}.get("unit") == "percentunit"
        and {**panel["fieldConfig"]["defaults"], **properties}.get("decimals") == 0
    ] == []


def test_rows_of_whole_numbers_have_their_label_in_the_middle() -> None:
    """`rowsToCellsHeatmap` puts the bound of a bucket at its upper edge, but for the layout `unknown`."""
    layouts = {
        panel["options"]["yAxis"]["axisLabel"]: panel["options"]["rowsFrame"]["layout"]
        for panel in PANELS.values()
        if panel["type"] == "heatmap"
    }
    assert layouts == {"accepted": "unknown", "acceptance": "auto"}

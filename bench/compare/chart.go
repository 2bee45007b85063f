package main

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

// chart draws the CPU time per delivery, with a bar for each side, load after load: the pale part
// is the cost of the same writes without watches. Bars of one load have the same scale.
func (r report) chart(out io.Writer) error {
	const (
		width, left, widest   = 760, 80, 470
		line, gap, top, title = 20, 16, 40, 22
	)
	var rows []row
	above := make(map[string]row) // by load
	height := top
	for _, x := range r.rows() {
		switch x.figure {
		case figureCPU, figureReplay:
			rows = append(rows, x)
			height += title + line*len(x.values) + gap
		case figureAbove:
			above[x.load] = x
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img">
<style>
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.head { font-weight: 600 }
.note { fill: #59636e }
.all { opacity: 0.35 }
.etcd { fill: #6e7781 } .proxy { fill: #a475f9 } .tier { fill: #2da44e } .native { fill: #218bff } .grpc { fill: #d4a72c } .nats { fill: #bc4c00 } .tcp { fill: #57606a }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .note { fill: #9198a1 } }
</style>
`, width, height, width, height)
	fmt.Fprintf(&b, `<text x="0" y="18"><tspan class="head">Server CPU per delivered event</tspan><tspan class="note" dx="12">%s; pale: the writes alone</tspan></text>`+"\n",
		escape(r.Setting))
	y := top
	for _, x := range rows {
		fmt.Fprintf(&b, `<text x="0" y="%d" class="head">%s</text>`+"\n", y+14, escape(x.load))
		y += title
		most := 0.0
		for _, v := range x.values {
			most = max(most, v)
		}
		for _, side := range r.Sides {
			v, ok := x.values[side]
			if !ok {
				continue
			}
			label := x.unit.text(v)
			if ratio, ok := x.ratio(side); ok && side != sideEtcd {
				label += fmt.Sprintf(" (%.2f of etcd's)", ratio)
			}
			solid := v
			if part, ok := above[x.load].values[side]; ok {
				solid = min(max(part, 0), v)
			}
			scale := widest / max(most, 1e-12)
			fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`, left-8, y+14, escape(side))
			for _, bar := range []struct {
				class string
				value float64
			}{{"all ", v}, {"", solid}} {
				fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="%d" rx="2" class="%s%s"/>`, left, y+3, bar.value*scale, line-6, bar.class, escape(side))
			}
			fmt.Fprintf(&b, `<text x="%.1f" y="%d">%s</text>`+"\n", left+v*scale+6, y+14, escape(label))
			y += line
		}
		y += gap
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(out, b.String())
	return err
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder never fails
	return b.String()
}

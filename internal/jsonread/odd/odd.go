// Package odd makes, for tests, documents that a decoder may stumble over.
package odd

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// Values are JSON values that are odd for one type of field or another.
var Values = []string{`null`, `""`, `"a"`, `1`, `1.0`, `-1`, `1e2`, `true`, `[]`, `{}`, `[null]`, `{"a":null}`, `"2026-01-01T00:00:00Z"`, `"2026-01-01T00:00:00.5+01:00"`, `"1Gi"`, `1.5`, `"aGk="`,
	`"aG k="`, `"\ud800"`, `"\u003c"`, "\"\xff\"", `9223372036854775808`, `[1,"a"]`, `{"b":1,"b":2}`, ` { } `, `"80"`, `"http"`, `{"a":{}}`, `{"a":"b","a":"c"}`}

// Exchange gives v, a tree as encoding/json decodes it, with one value somewhere in it exchanged for an odd one, or one name for another. It may change v.
func Exchange(r *rand.Rand, v any) any {
	switch x := v.(type) {
	case map[string]any:
		if len(x) > 0 && r.IntN(8) > 0 {
			k := slices.Sorted(maps.Keys(x))[r.IntN(len(x))]
			switch r.IntN(12) {
			case 0:
				x[strings.ToUpper(k)] = x[k]
				delete(x, k)
			case 1:
				x["unheardOf"] = x[k]
			default:
				x[k] = Exchange(r, x[k])
			}
			return x
		}
	case []any:
		if len(x) > 0 && r.IntN(8) > 0 {
			i := r.IntN(len(x))
			x[i] = Exchange(r, x[i])
			return x
		}
	}
	return json.RawMessage(Values[r.IntN(len(Values))])
}

package nodeexpr

import "testing"

// FuzzCompile compiles what a client may write in a policy: what is taken has a cost within the limit.
func FuzzCompile(f *testing.F) {
	for _, s := range []string{"true", "1 + 1", `node.labels["a"] == "b"`, `node.labels.exists(k, k.startsWith("a"))`, `"x".matches("(a+)+$")`, "[1,2,3].map(x, [1,2,3].map(y, x*y))", "node", "((((", `quantity("1Gi")`, "{'a': 1}['a']", "1 / 0", "variables.x", `"\u0000"`, "has(node.metadata.labels)"} {
		f.Add(s, uint8(0))
		f.Add(s, uint8(1))
	}
	f.Fuzz(func(t *testing.T, text string, want uint8) {
		if len(text) > 2000 {
			return
		}
		c, err := NewCompiler(want&4 != 0)
		if err != nil {
			t.Fatal(err)
		}
		e, err := c.Compile(text, []Want{Bool, Number, Anything}[int(want)%3])
		if err == nil && e.Cost() > MaxCost {
			t.Errorf("%q was taken at a cost of %d", text, e.Cost())
		}
	})
}

package simulate

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	jsonserializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/yare-project/yare/client"
)

// takenAnnotation says when a saved cluster was read.
const takenAnnotation = "simulate.yare.io/taken"

// Save writes the cluster as a List in JSON, one object a line: kubectl reads it as well.
func (c *Cluster) Save(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "{\"apiVersion\":\"v1\",\"kind\":\"List\",\"metadata\":{\"annotations\":{%q:%q}},\"items\":[", takenAnnotation, c.Taken.UTC().Format(time.RFC3339))
	for k, o := range c.Objects {
		if k > 0 {
			out.WriteByte(',')
		}
		out.WriteByte('\n')
		gvk, _ := client.KindOf(o)
		named := o.DeepCopyObject()
		named.GetObjectKind().SetGroupVersionKind(gvk)
		body, err := json.Marshal(named)
		if err != nil {
			return fmt.Errorf("%s %s: %w", gvk.Kind, qualified(o), err)
		}
		out.Write(body)
	}
	out.WriteString("\n]}\n")
	return out.Flush()
}

// Load reads a cluster that Save wrote, or any list of objects as kubectl prints it, in JSON or YAML. Objects that do not matter for scheduling are left out.
func Load(r io.Reader) (*Cluster, error) {
	c := &Cluster{}
	wanted := map[any]bool{}
	for _, gvr := range Resources() {
		wanted[gvr] = true
	}
	err := eachDocument(r, func(d document) error {
		if at, err := time.Parse(time.RFC3339, d.annotations[takenAnnotation]); err == nil && c.Taken.IsZero() {
			c.Taken = at
		}
		o, err := d.object(false)
		if err != nil || o == nil || !wanted[resourceOf(o)] {
			return err
		}
		c.Objects = append(c.Objects, trimmed(o))
		return nil
	})
	if err != nil {
		return nil, err
	}
	c.sort()
	return c, nil
}

// document is one object of a stream, not yet decoded.
type document struct {
	metav1.TypeMeta
	body        []byte            // JSON
	annotations map[string]string // of the List that it is in
}

// eachDocument calls f for each object of a stream of YAML or JSON, those in Lists too.
func eachDocument(r io.Reader, f func(document) error) error {
	buffered := bufio.NewReaderSize(r, 1<<16)
	next, isJSON := jsonStream(buffered)
	if !isJSON {
		next = yamlStream(buffered)
	}
	for n := 1; ; n++ {
		body, err := next()
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = eachIn(body, nil, f)
		}
		if err != nil {
			return fmt.Errorf("document %d: %w", n, err)
		}
	}
}

// jsonStream reads JSON documents, if r begins with one: with a brace and a quote. What else begins with a brace is YAML.
func jsonStream(r *bufio.Reader) (func() ([]byte, error), bool) {
	head, _ := r.Peek(512)
	rest, brace := bytes.CutPrefix(bytes.TrimLeft(head, "\ufeff \t\r\n"), []byte("{"))
	if !brace || !bytes.HasPrefix(bytes.TrimLeft(rest, " \t\r\n"), []byte(`"`)) {
		return nil, false
	}
	d := json.NewDecoder(r)
	return func() ([]byte, error) {
		var raw json.RawMessage
		err := d.Decode(&raw)
		return raw, err
	}, true
}

func yamlStream(r *bufio.Reader) func() ([]byte, error) {
	d := utilyaml.NewYAMLReader(r)
	return func() ([]byte, error) {
		for {
			text, err := d.Read()
			if err != nil {
				return nil, err
			}
			body, err := yaml.YAMLToJSONStrict(text)
			if err != nil {
				return nil, err
			}
			if string(body) != "null" { // nothing but comments
				return body, nil
			}
		}
	}
}

// eachIn opens Lists.
func eachIn(body []byte, annotations map[string]string, f func(document) error) error {
	var head struct {
		metav1.TypeMeta
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(body, &head); err != nil {
		return err
	}
	if head.Kind == "List" && head.APIVersion == "v1" {
		for k, item := range head.Items {
			if err := eachIn(item, head.Metadata.Annotations, f); err != nil {
				return fmt.Errorf("items[%d]: %w", k, err)
			}
		}
		return nil
	}
	if head.Kind == "" || head.APIVersion == "" {
		return fmt.Errorf("apiVersion and kind are needed to know what this is")
	}
	return f(document{head.TypeMeta, body, annotations})
}

// object decodes a document of a built-in kind; nil for any other. Strict refuses fields that the kind does not have.
func (d document) object(strict bool) (client.Object, error) {
	gvk := d.GroupVersionKind()
	if gvk.Group == "metrics.k8s.io" && gvk.Kind == "NodeMetrics" {
		return measured(d.body)
	}
	typed, err := client.Scheme().New(gvk)
	if err != nil {
		if runtime.IsNotRegisteredError(err) {
			return nil, nil
		}
		return nil, err
	}
	o, ok := typed.(client.Object)
	if !ok {
		return nil, nil
	}
	if strict {
		options := jsonserializer.SerializerOptions{Strict: true}
		_, _, err = jsonserializer.NewSerializerWithOptions(jsonserializer.DefaultMetaFactory, client.Scheme(), client.Scheme(), options).Decode(d.body, &gvk, o)
	} else {
		err = json.Unmarshal(d.body, o)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", gvk.Kind, err)
	}
	o.GetObjectKind().SetGroupVersionKind(gvk)
	return o, nil
}

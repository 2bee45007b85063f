package object_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/internal/kube/object"
)

// widget is a custom resource without a schema. Its strings contain brackets, quotes and escapes.
const widget = `{ "apiVersion":"example.com/v1", "kind":"Widget",
 "spec":{"metadata":{"resourceVersion":"1"},"text":"}]\"\\","list":[1,{"a":null},[]],"on":true},
 "metadata":{"labels":{"app":"a\u0062","n":1},"name":"w-1","namespace":"default","annotations":{},"uid":"u","resourceVersion" : "41"}}`

func protobufPod(t testing.TB) []byte {
	t.Helper()
	mark := object.NewBookmark(object.Protobuf, "v1", "Pod", 41, true)
	o, err := object.Parse(object.Protobuf, mark)
	if err != nil {
		t.Fatal(err)
	}
	// ObjectMeta with name and namespace, then spec{nodeName} and status{phase}.
	body := append([]byte("\x0a\x14\x0a\x03p-1\x1a\x07default\x32\x0241\x5a\x00"), "\x12\x08\x52\x06node-a\x1a\x09\x0a\x07Running"...)
	raw, err := object.FromItem(object.Protobuf, string(o.APIVersion), string(o.Kind), body)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestACustomResourceIsParsedWithoutItsSchema(t *testing.T) {
	o, err := object.Parse(object.JSON, []byte(widget))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join([]string{string(o.APIVersion), string(o.Kind), string(o.Namespace), string(o.Name), string(o.UID), string(o.ResourceVersion)}, " "); got != "example.com/v1 Widget default w-1 u 41" {
		t.Errorf("parsed %s", got)
	}
	var labels []string
	for k, v := range o.Labels() {
		labels = append(labels, string(k)+"="+string(v))
	}
	if !slices.Equal(labels, []string{"app=ab"}) {
		t.Errorf("labels %q", labels)
	}
	want := strings.Replace(widget, `"resourceVersion" : "41"`, `"resourceVersion" : "1234"`, 1)
	if got := o.WithVersion(1234); string(got) != want {
		t.Errorf("with version 1234:\n%s\nwant\n%s", got, want)
	}
}

func TestAMissingVersionIsAdded(t *testing.T) {
	for raw, want := range map[string]string{
		`{}`:                            `{"metadata":{"resourceVersion":"5"}}`,
		`{"metadata":{}}`:               `{"metadata":{"resourceVersion":"5"}}`,
		`{"metadata":{"name":"a"}}`:     `{"metadata":{"resourceVersion":"5","name":"a"}}`,
		`{"metadata":null,"kind":"K"}`:  `{"metadata":{"resourceVersion":"5"},"kind":"K"}`,
		`{"kind":"K","metadata": { } }`: `{"kind":"K","metadata": {"resourceVersion":"5"} }`,
	} {
		o, err := object.Parse(object.JSON, []byte(raw))
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		if got := o.WithVersion(5); string(got) != want {
			t.Errorf("%s: %s, want %s", raw, got, want)
		}
	}
}

func TestMalformedObjectsAreRefused(t *testing.T) {
	for _, raw := range []string{"", "x", "[]", `"a"`, "{", `{"a"}`, `{"a":}`, `{"a":1,}`, `{"a":"}`, `{"metadata":[]}`, `{"metadata":{"a":1}`, `{a:1}`, `{"a":[}`} {
		if o, err := object.Parse(object.JSON, []byte(raw)); !errors.Is(err, object.ErrMalformed) {
			t.Errorf("%.40q: %+v, %v", raw, o, err)
		}
	}
	pod := protobufPod(t)
	for n := range len(pod) - 4 { // the last four bytes are two empty fields
		if o, err := object.Parse(object.Protobuf, pod[:n]); err == nil && len(o.Name) > 0 {
			t.Errorf("the first %d of %d bytes are accepted: %+v", n, len(pod), o)
		}
	}
	for _, version := range []string{"", "0", "-1", "a", "99999999999999999999"} {
		o, err := object.Parse(object.JSON, []byte(`{"metadata":{"resourceVersion":"`+version+`"}}`))
		if err != nil {
			t.Fatal(err)
		}
		if v, err := o.Version(); err == nil {
			t.Errorf("version %q is accepted as %d", version, v)
		}
	}
}

func TestFieldsOfBothEncodings(t *testing.T) {
	inJSON := []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p-1","namespace":"default"},"spec":{"nodeName":"node-a"},"status":{"phase":"Running"}}`)
	for enc, raw := range map[object.Encoding][]byte{object.Protobuf: protobufPod(t), object.JSON: inJSON} {
		o, err := object.Parse(enc, raw)
		if err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]string{
			"metadata.name": "p-1", "metadata.namespace": "default", "spec.nodeName": "node-a", "status.phase": "Running",
			"spec.schedulerName": "", "spec.hostNetwork": "false",
		} {
			f, ok := object.FieldOf("v1", "Pod", path)
			if !ok || f.Value(&o) != want {
				t.Errorf("%v: field %s is %q (known: %v), want %q", enc, path, f.Value(&o), ok, want)
			}
		}
	}
	for _, c := range [][3]string{{"v1", "Pod", "spec.hostname"}, {"v1", "Node", "spec.nodeName"}, {"example.com/v1", "Pod", "spec.nodeName"}} {
		if _, ok := object.FieldOf(c[0], c[1], c[2]); ok {
			t.Errorf("%v is selectable, want only fields that apiservers support", c)
		}
	}
}

// Whole returns the same item of an object as Parse, in both encodings, without reading the object.
func TestAnObjectOfAListIsNotRead(t *testing.T) {
	for enc, raw := range map[object.Encoding][]byte{object.Protobuf: protobufPod(t), object.JSON: []byte(widget)} {
		parsed, err := object.Parse(enc, raw)
		if err != nil {
			t.Fatal(err)
		}
		whole, err := object.Whole(enc, raw)
		if err != nil || len(parsed.Item()) == 0 || !bytes.Equal(whole.Item(), parsed.Item()) || !bytes.Equal(whole.Raw, raw) || whole.Encoding != enc {
			t.Errorf("%s: item %q, want %q: %v", enc, whole.Item(), parsed.Item(), err)
		}
	}
	if _, err := object.Whole(object.Protobuf, []byte("k8s")); !errors.Is(err, object.ErrMalformed) {
		t.Errorf("a protobuf object without its prefix: %v, want ErrMalformed", err)
	}
}

// The items of a list equal those in an apiserver's JSON. Items of built-in resources lack their kind, which the
// list has. Items of custom resources have it.
func TestItemsOfAListAreAnApiservers(t *testing.T) {
	for item, want := range map[string]string{
		`{"kind":"Pod","apiVersion":"v1","metadata":{}}`:                     `{"metadata":{}}`,
		`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{}}`:      `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{}}`,
		`{"kind":"Pod","metadata":{},"apiVersion":"v1"}`:                     `{"kind":"Pod","metadata":{},"apiVersion":"v1"}`,
		`{"kind":"Pod","apiVersion":"v1"}`:                                   `{"kind":"Pod","apiVersion":"v1"}`,
		`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"kind"}}`:  `{"metadata":{"name":"kind"}}`,
		`{"kind":"Job","apiVersion":"batch/v1","metadata":{},"status":null}`: `{"metadata":{},"status":null}`,
	} {
		var list bytes.Buffer
		meta := object.ListMeta{APIVersion: "v1", Kind: "List", ResourceVersion: "7"}
		if err := object.WriteList(&list, object.JSON, meta, [][]byte{[]byte(item), []byte(item)}); err != nil {
			t.Fatal(err)
		}
		if want := `{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[` + want + "," + want + "]}\n"; list.String() != want {
			t.Errorf("got  %s\nwant %s", list.String(), want)
		}
	}
}

// The items of a list of metadata share the bytes of each object's metadata: such a list may be as large as the
// list of its objects.
func TestAListOfMetadataCopiesNone(t *testing.T) {
	for enc, raw := range map[object.Encoding][]byte{object.Protobuf: protobufPod(t), object.JSON: []byte(widget)} {
		o, err := object.Parse(enc, raw)
		if err != nil {
			t.Fatal(err)
		}
		item := o.PartialItem()
		if at := bytes.Index(raw, item); at < 0 || &raw[at] != &item[0] {
			t.Errorf("%s: the metadata was copied", enc)
		}
		var list bytes.Buffer
		meta := object.ListMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList", ResourceVersion: "7"}
		if err := object.WriteList(&list, enc, meta, [][]byte{item, item}); err != nil {
			t.Fatal(err)
		}
		read, items, err := object.ParseList(enc, list.Bytes())
		if err != nil || read != meta || len(items) != 2 {
			t.Fatalf("%s: read %+v with %d items, %v", enc, read, len(items), err)
		}
		want, err := object.Parse(enc, o.Partial())
		if err != nil || !bytes.Equal(items[0], want.Item()) || !bytes.Equal(items[1], want.Item()) {
			t.Errorf("%s: items %q, want %q, %v", enc, items, want.Item(), err)
		}
	}
}

// Empty lists equal an apiserver's: the items are [] in lists of objects, and null in lists of metadata.
func TestEmptyListsAreAnApiservers(t *testing.T) {
	for kind, want := range map[string]string{"PodList": "[]", "PartialObjectMetadataList": "null"} {
		var list bytes.Buffer
		if err := object.WriteList(&list, object.JSON, object.ListMeta{APIVersion: "v1", Kind: kind, ResourceVersion: "7"}, nil); err != nil {
			t.Fatal(err)
		}
		if want := `{"kind":"` + kind + `","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":` + want + "}\n"; list.String() != want {
			t.Errorf("got  %s\nwant %s", list.String(), want)
		}
	}
}

func TestFramesHaveABound(t *testing.T) {
	for _, enc := range []object.Encoding{object.JSON, object.Protobuf} {
		small := object.AppendEvent(nil, enc, object.Added, []byte(`{}`))
		stream := object.AppendEvent(slices.Clone(small), enc, object.Added, bytes.Repeat([]byte("x"), 100))
		frames := object.NewFrames(enc, bytes.NewReader(stream), 64)
		if e, err := frames.Next(); err != nil || e.Type != object.Added {
			t.Fatalf("%v: %+v, %v", enc, e, err)
		}
		if _, err := frames.Next(); !errors.Is(err, object.ErrMalformed) {
			t.Errorf("%v: a frame above the size limit: %v, want ErrMalformed", enc, err)
		}
		cut := object.NewFrames(enc, bytes.NewReader(small[:len(small)-2]), 64)
		if _, err := cut.Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%v: a truncated frame: %v, want ErrUnexpectedEOF", enc, err)
		}
	}
}

// Any bytes either parse or fail with ErrMalformed. A parsed object keeps its parts when its version is replaced.
func FuzzObject(f *testing.F) {
	f.Add(false, []byte(widget))
	f.Add(true, protobufPod(f))
	f.Add(true, (&object.Status{Code: 410, Cause: "c"}).Encode(object.Protobuf))
	f.Fuzz(func(t *testing.T, protobuf bool, raw []byte) {
		enc := object.JSON
		if protobuf {
			enc = object.Protobuf
		}
		if _, _, err := object.ParseList(enc, raw); err != nil && !errors.Is(err, object.ErrMalformed) {
			t.Error(err)
		}
		_, _ = object.ParseStatus(enc, raw)
		o, err := object.Parse(enc, raw)
		if err != nil {
			if !errors.Is(err, object.ErrMalformed) {
				t.Error(err)
			}
			return
		}
		for range o.Labels() {
		}
		for _, path := range []string{"metadata.name", "spec.nodeName", "spec.hostNetwork"} {
			if field, ok := object.FieldOf("v1", "Pod", path); ok {
				field.Value(&o)
			}
		}
		again, err := object.Parse(enc, o.WithVersion(77))
		if err != nil {
			t.Fatalf("%q does not parse with another version: %v", raw, err)
		}
		if v, err := again.Version(); err != nil || v != 77 || !bytes.Equal(again.Name, o.Name) || !bytes.Equal(again.Namespace, o.Namespace) {
			t.Errorf("%q became %+v, %v", raw, again, err)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	for _, enc := range []object.Encoding{object.JSON, object.Protobuf} {
		raw := []byte(widget)
		if enc == object.Protobuf {
			raw = protobufPod(b)
		}
		b.Run("enc="+enc.String(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := object.Parse(enc, raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

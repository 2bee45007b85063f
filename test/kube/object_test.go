package kube_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/types"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/shardwatch/shardwatch/internal/kube/object"
	"github.com/shardwatch/shardwatch/internal/kube/selector"
)

// codec encodes and decodes like apiservers and client-go.
type codec struct {
	enc    object.Encoding
	info   runtime.SerializerInfo
	scheme *runtime.Scheme
}

func codecs(t *testing.T) []codec {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	factory := serializer.NewCodecFactory(scheme)
	var out []codec
	for _, enc := range []object.Encoding{object.JSON, object.Protobuf} {
		info, ok := runtime.SerializerInfoForMediaType(factory.SupportedMediaTypes(), enc.MediaType())
		if !ok {
			t.Fatalf("no serializer for %v", enc)
		}
		out = append(out, codec{enc, info, scheme})
	}
	return out
}

func (c *codec) encode(t *testing.T, o runtime.Object) []byte {
	t.Helper()
	kinds, _, err := c.scheme.ObjectKinds(o)
	if err != nil {
		t.Fatal(err)
	}
	o.GetObjectKind().SetGroupVersionKind(kinds[0])
	b, err := runtime.Encode(c.info.Serializer, o)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSuffix(b, []byte("\n"))
}

func (c *codec) decode(t *testing.T, b []byte) runtime.Object {
	t.Helper()
	o, _, err := c.info.Serializer.Decode(b, nil, nil)
	if err != nil {
		t.Fatalf("%v: %v\n%q", c.enc, err, b)
	}
	return o
}

// pod returns a pod with random labels and fields.
func pod(r *rand.Rand, n int) *corev1.Pod {
	some := func(values ...string) string { return values[r.IntN(len(values))] }
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("pod-%d", n), Namespace: some("default", "kube-system"), UID: types.UID(fmt.Sprint("uid-", n)),
			ResourceVersion: fmt.Sprint(r.Int64N(1 << 40)), CreationTimestamp: metav1.Unix(r.Int64N(1<<30), 0),
			Annotations:     map[string]string{"quote": "a \"b\" \\ \u2028 <&> ü", "empty": ""},
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "own", UID: "other"}},
			ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "test", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{}}}`)}},
		},
		Spec: corev1.PodSpec{
			NodeName: some("", "node-a", "node-b"), RestartPolicy: corev1.RestartPolicy(some("Always", "Never")), HostNetwork: r.IntN(2) == 0,
			SchedulerName: some("", "mine"), ServiceAccountName: some("", "builder"), Containers: []corev1.Container{{Name: "c", Image: "i", Env: []corev1.EnvVar{{Name: "metadata", Value: `{"resourceVersion":"1"}`}}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPhase(some("Pending", "Running", "Failed")), NominatedNodeName: some("", "node-a")},
	}
	for _, key := range []string{"app", "tier", "example.com/size"} {
		if r.IntN(3) > 0 {
			metav1.SetMetaDataLabel(&p.ObjectMeta, key, some("", "a", "b", "7", "12"))
		}
	}
	return p
}

// TestSplicedObjectsEqual compares an object with a replaced version, and its metadata alone, with
// apimachinery's encoding: byte by byte.
func TestSplicedObjectsEqual(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, c := range codecs(t) {
		for n := range 300 {
			p := pod(r, n)
			o, err := object.Parse(c.enc, c.encode(t, p))
			if err != nil {
				t.Fatal(err)
			}
			if string(o.Name) != p.Name || string(o.Namespace) != p.Namespace || string(o.UID) != string(p.UID) ||
				string(o.ResourceVersion) != p.ResourceVersion || string(o.Kind) != "Pod" || string(o.APIVersion) != "v1" {
				t.Fatalf("%v: parsed %+v", c.enc, o)
			}
			version := r.Int64N(1 << (1 + r.IntN(60)))
			p.ResourceVersion = fmt.Sprint(version)
			if want, got := c.encode(t, p), o.WithVersion(version); !bytes.Equal(got, want) {
				t.Fatalf("%v at version %d:\ngot  %q\nwant %q", c.enc, version, got, want)
			}
			spliced, err := object.Parse(c.enc, o.WithVersion(version))
			if err != nil {
				t.Fatal(err)
			}
			partial := &metav1.PartialObjectMetadata{ObjectMeta: p.ObjectMeta}
			if want, got := c.encode(t, partial), spliced.Partial(); !bytes.Equal(got, want) {
				t.Fatalf("%v partial:\ngot  %q\nwant %q", c.enc, got, want)
			}
		}
	}
}

// TestListsDecode decodes lists of package object with apimachinery, and parses apimachinery's
// lists with package object.
func TestListsDecode(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, c := range codecs(t) {
		for size := range 20 {
			want := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "77"}, Items: []corev1.Pod{}}
			if size%3 == 1 {
				left := int64(9)
				want.Continue, want.RemainingItemCount = "next", &left
			}
			var items [][]byte
			for n := range size {
				p := pod(r, n)
				o, err := object.Parse(c.enc, c.encode(t, p))
				if err != nil {
					t.Fatal(err)
				}
				items = append(items, o.Item())
				p.TypeMeta = metav1.TypeMeta{} // implied by the kind of the list
				want.Items = append(want.Items, *p)
			}
			meta := object.ListMeta{APIVersion: "v1", Kind: "PodList", ResourceVersion: "77", Continue: want.Continue}
			if want.RemainingItemCount != nil {
				meta.Remaining = *want.RemainingItemCount
			}
			var out bytes.Buffer
			if err := object.WriteList(&out, c.enc, meta, items); err != nil {
				t.Fatal(err)
			}
			theirs := c.encode(t, want)
			if c.enc == object.Protobuf && !bytes.Equal(out.Bytes(), theirs) {
				t.Fatalf("list of %d:\ngot  %q\nwant %q", size, out.Bytes(), theirs)
			}
			if got := c.decode(t, out.Bytes()); !equality.Semantic.DeepEqual(got, c.decode(t, theirs)) {
				t.Fatalf("%v: got %+v\nwant %+v", c.enc, got, want)
			}
			read, parts, err := object.ParseList(c.enc, theirs)
			if err != nil || read != meta || len(parts) != size {
				t.Fatalf("%v: read %+v with %d items (%v), want %+v with %d", c.enc, read, len(parts), err, meta, size)
			}
			for i, part := range parts {
				whole, err := object.FromItem(c.enc, "v1", "Pod", part)
				if err != nil {
					t.Fatal(err)
				}
				if got := c.decode(t, whole); !equality.Semantic.DeepEqual(got, c.decode(t, c.encode(t, &want.Items[i]))) {
					t.Fatalf("%v: item %d is %+v", c.enc, i, got)
				}
			}
		}
	}
}

// TestWatchFramesDecode reads frames with apimachinery's stream decoder.
func TestWatchFramesDecode(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, c := range codecs(t) {
		p := c.encode(t, pod(r, 1))
		status := &object.Status{Code: 410, Reason: "Expired", Message: "too \"old\"", Cause: "ResourceVersionTooLarge", RetryAfter: 2, Continue: "token"}
		events := []object.Event{
			{Type: object.Added, Object: p},
			{Type: object.Bookmark, Object: object.NewBookmark(c.enc, "v1", "Pod", 12, true)},
			{Type: object.Error, Object: status.Encode(c.enc)},
		}
		var stream []byte
		for _, e := range events {
			stream = object.AppendEvent(stream, c.enc, e.Type, e.Object)
		}
		decoder := streaming.NewDecoder(c.info.StreamSerializer.Framer.NewFrameReader(io.NopCloser(bytes.NewReader(stream))), c.info.StreamSerializer)
		frames := object.NewFrames(c.enc, bytes.NewReader(stream), 1<<20)
		var objects []runtime.Object
		for _, want := range events {
			var e metav1.WatchEvent
			if _, _, err := decoder.Decode(nil, &e); err != nil {
				t.Fatal(err)
			}
			if e.Type != want.Type {
				t.Fatalf("%v: type %q, want %q", c.enc, e.Type, want.Type)
			}
			objects = append(objects, c.decode(t, e.Object.Raw))
			ours, err := frames.Next()
			if err != nil || ours.Type != want.Type || !bytes.Equal(ours.Object, want.Object) {
				t.Fatalf("%v: read %+v, %v; want %+v", c.enc, ours, err, want)
			}
		}
		if _, err := frames.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("%v: after the last frame: %v", c.enc, err)
		}
		mark := objects[1].(*corev1.Pod)
		if mark.ResourceVersion != "12" || mark.Annotations[metav1.InitialEventsAnnotationKey] != "true" {
			t.Errorf("%v: bookmark %+v", c.enc, mark.ObjectMeta)
		}
		failure := objects[2].(*metav1.Status)
		if failure.Code != 410 || failure.Reason != metav1.StatusReasonExpired || failure.Message != status.Message || failure.Details.RetryAfterSeconds != 2 || failure.Continue != status.Continue ||
			failure.Details.Causes[0].Type != metav1.CauseTypeResourceVersionTooLarge {
			t.Errorf("%v: status %+v", c.enc, failure)
		}
		back, err := object.ParseStatus(c.enc, c.encode(t, failure))
		if err != nil || back.Code != 410 || back.Reason != "Expired" || back.Message != status.Message {
			t.Errorf("%v: parsed %+v, %v", c.enc, back, err)
		}
	}
}

// TestSelectorsEqual compares selectors with apimachinery's: the valid texts, and the matching
// pods.
func TestSelectorsEqual(t *testing.T) {
	labelTexts := []string{
		"", "app", "!app", "app=a", "app==b", "app!=a", "app=", "app in (a,b)", "app in (a,)", "app notin (a, b)", " app in ( a ) , tier!=b ",
		"example.com/size>7", "example.com/size<12", "app,!tier", "app=a,tier=b", "app notin ()", "in in (in)", "app in a", "app=a tier=b", "=a", ",", "app,", "app in (a", "app>x", "!", "app ! a", "app)", "a=b=c",
	}
	fieldTexts := []string{
		"", "metadata.name=pod-3", "metadata.namespace!=default", "spec.nodeName=node-a", "spec.nodeName=", "spec.nodeName!=", "status.phase=Running,spec.nodeName==node-b",
		"spec.hostNetwork=true", "spec.hostNetwork!=true", "spec.restartPolicy=Never", "spec.schedulerName=mine", "spec.serviceAccountName=builder", "status.nominatedNodeName=node-a",
		`metadata.name=a\,b`, `metadata.name=a\x`, "metadata.name", "a=b=c", `metadata.name=\`,
	}
	r := rand.New(rand.NewPCG(7, 8))
	var pods []*corev1.Pod
	for n := range 60 {
		pods = append(pods, pod(r, n))
	}
	matched := 0
	for _, labelText := range labelTexts {
		for _, fieldText := range fieldTexts {
			byLabel, labelErr := labels.Parse(labelText)
			byField, fieldErr := fields.ParseSelector(fieldText)
			ours, err := selector.Parse(labelText, fieldText)
			if (err != nil) != (labelErr != nil || fieldErr != nil) {
				t.Errorf("%q %q: %v, apimachinery says %v, %v", labelText, fieldText, err, labelErr, fieldErr)
			}
			if err != nil || labelErr != nil || fieldErr != nil {
				continue
			}
			for _, c := range codecs(t) {
				for _, p := range pods {
					o, err := object.Parse(c.enc, c.encode(t, p))
					if err != nil {
						t.Fatal(err)
					}
					want := byLabel.Matches(labels.Set(p.Labels)) && byField.Matches(fields.Set{
						"metadata.name": p.Name, "metadata.namespace": p.Namespace, "spec.nodeName": p.Spec.NodeName, "status.phase": string(p.Status.Phase),
						"spec.hostNetwork": fmt.Sprint(p.Spec.HostNetwork), "spec.restartPolicy": string(p.Spec.RestartPolicy), "spec.schedulerName": p.Spec.SchedulerName,
						"spec.serviceAccountName": p.Spec.ServiceAccountName, "status.nominatedNodeName": p.Status.NominatedNodeName,
					})
					if got := ours.Matches(&o); got != want {
						t.Fatalf("%v: %q %q on %v %+v: %v, want %v", c.enc, labelText, fieldText, p.Labels, p.Spec, got, want)
					}
					if want {
						matched++
					}
				}
			}
		}
	}
	if matched < 1000 {
		t.Errorf("%d matches are too few to compare", matched)
	}
}

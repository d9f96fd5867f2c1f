package synth

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// kind is a column's type.
type kind int

const (
	text   kind = iota // VARCHAR
	number             // INTEGER
	date               // DATE
)

func (k kind) String() string { return [...]string{"VARCHAR", "INTEGER", "DATE"}[k] }

// column is one column of a pool.
type column struct {
	name       string // SQL identifier
	kind       kind
	vocabulary string // of a text column
	lo, hi, st int    // range and step of a number; years of a date
}

// words is the column's name as a question says it.
func (c column) words() string { return strings.ReplaceAll(c.name, "_", " ") }

// table is a pool of columns that records' tables are drawn from.
type table struct {
	name      string // SQL identifier
	one, many string // what a row is called
	parent    string // table that rows refer to by <one of parent>_id; may be empty
	columns   []column
}

// The pools: "table; row; rows; parent; columns". A column is name=vocabulary,
// name#lo-hi/step, or name@ for a date.
const trainTables = `
employees; employee; employees; departments; full_name=person job_title=job city=city salary#20000-150000/500 hire_date@ age#18-65/1 bonus_amount#100-9000/100 office_region=region vacation_days#5-40/1
departments; department; departments; ; department_name=title manager_name=person annual_budget#10000-900000/5000 floor_number#1-30/1 head_count#2-300/1 location=city cost_center=grade
students; student; students; schools; student_name=person major=subject grade_level=grade birth_date@ credit_hours#1-180/1 test_score#0-100/1 home_city=city advisor_name=person
schools; school; schools; ; school_name=place district=region founded_year#1850-2020/1 total_students#50-5000/10 principal_name=person school_type=category annual_fee#500-30000/100
movies; movie; movies; directors; movie_title=title genre=genre release_year#1950-2024/1 running_time#60-240/1 box_office#1000-900000/1000 spoken_language=language lead_actor=person
directors; director; directors; ; director_name=person nationality=country birth_year#1920-2000/1 award_count#0-30/1 debut_film=title
books; book; books; authors; book_title=title genre=genre page_count#50-1200/1 price#5-90/1 publication_date@ publisher=company copies_sold#100-90000/100 print_language=language
authors; author; authors; ; author_name=person home_country=country birth_year#1900-2000/1 book_count#1-60/1 main_genre=genre
songs; song; songs; artists; song_title=title music_style=music duration_seconds#90-600/1 play_count#1000-990000/1000 release_date@ record_label=company chart_rank#1-100/1
artists; artist; artists; ; artist_name=person origin_country=country active_since#1960-2022/1 album_count#1-40/1 main_style=music
flights; flight; flights; airports; flight_code=grade departure_city=city arrival_city=city ticket_price#50-2000/10 flight_date@ seat_count#50-400/1 flight_status=status duration_minutes#40-900/5
airports; airport; airports; ; airport_name=place country=country runway_count#1-8/1 yearly_passengers#10000-990000/5000 elevation#0-4000/10
hotels; hotel; hotels; ; hotel_name=place city=city star_rating#1-5/1 room_count#10-900/1 nightly_rate#40-900/5 opening_date@ manager_name=person
bookings; booking; bookings; hotels; guest_name=person room_type=room check_in_date@ total_cost#50-5000/10 night_count#1-30/1 payment_method=payment booking_status=status
customers; customer; customers; ; customer_name=person email_city=city loyalty_level=level total_spent#10-90000/10 signup_date@ order_count#0-400/1 country=country
orders; order; orders; customers; order_status=status order_date@ shipping_cost#1-200/1 total_amount#5-9000/5 item_count#1-50/1 delivery_city=city payment_method=payment
products; product; products; suppliers; product_name=title category=category unit_price#1-2000/1 stock_level#0-5000/10 color=color net_weight#1-500/1 launch_date@ material=material
suppliers; supplier; suppliers; ; supplier_name=company contact_person=person country=country lead_time#1-90/1 credit_limit#1000-90000/1000 quality_score#1-100/1
patients; patient; patients; doctors; patient_name=person diagnosis=disease admission_date@ age#1-99/1 blood_pressure#80-200/1 ward=grade stay_length#1-60/1
doctors; doctor; doctors; hospitals; doctor_name=person specialty=subject experience_years#1-45/1 consult_fee#50-900/10 work_shift=weekday
hospitals; hospital; hospitals; ; hospital_name=place city=city bed_count#20-2000/10 annual_income#10000-990000/1000 opened_year#1850-2020/1 trauma_level=level
teams; team; teams; ; team_name=team home_city=city coach_name=person founded_year#1880-2015/1 stadium_capacity#1000-90000/500 team_color=color titles_won#0-40/1
players; player; players; teams; player_name=person playing_position=position jersey_number#1-99/1 goals_scored#0-300/1 contract_value#1000-900000/1000 birth_date@ home_country=country
matches; match; matches; ; home_team=team away_team=team home_score#0-12/1 away_score#0-12/1 match_date@ attendance#100-90000/100 referee_name=person
vehicles; vehicle; vehicles; ; vehicle_type=vehicle brand=brand model_year#1980-2024/1 engine_power#40-700/5 fuel_type=fuel list_price#3000-200000/500 body_color=color top_speed#80-320/1
drivers; driver; drivers; vehicles; driver_name=person license_date@ accident_count#0-20/1 hourly_wage#10-90/1 home_base=city shift_day=weekday
courses; course; courses; teachers; course_title=title subject=subject credit_value#1-12/1 start_date@ enrolled_students#5-400/1 teaching_language=language course_level=level
teachers; teacher; teachers; ; teacher_name=person main_subject=subject years_teaching#1-45/1 monthly_salary#1000-9000/100 home_town=city
restaurants; restaurant; restaurants; ; restaurant_name=place cuisine_type=cuisine city=city seat_capacity#10-400/1 average_price#5-200/1 review_score#1-10/1 opening_date@
dishes; dish; dishes; restaurants; dish_name=title calorie_count#50-1500/10 menu_price#3-90/1 spice_level=level main_ingredient=fruit preparation_time#5-120/5
museums; museum; museums; ; museum_name=place city=city visitor_count#1000-990000/1000 entry_fee#0-60/1 opened_year#1780-2020/1 art_period=genre
paintings; painting; paintings; museums; painting_title=title painter_name=person canvas_width#10-600/1 paint_material=material estimated_value#1000-990000/1000 completion_year#1400-2020/1
accounts; account; accounts; banks; holder_name=person account_type=category current_balance#0-90000/10 opened_date@ interest_rate#1-20/1 account_status=status
banks; bank; banks; ; bank_name=company head_office=city total_assets#10000-990000/1000 branch_count#1-900/1 founded_year#1800-2015/1
loans; loan; loans; banks; borrower_name=person loan_amount#1000-500000/500 issue_date@ term_months#6-360/6 loan_status=status monthly_payment#50-5000/10
projects; project; projects; ; project_name=title client_name=company start_date@ total_budget#1000-900000/1000 team_size#1-60/1 project_status=status priority_level=level
tasks; task; tasks; projects; task_title=title assigned_person=person due_date@ estimated_hours#1-200/1 task_status=status spent_hours#0-300/1
servers; server; servers; ; server_name=planet data_center=city memory_size#4-1024/4 disk_size#100-9000/100 server_status=status uptime_days#0-900/1 install_date@
animals; animal; animals; zoos; animal_name=first species=animal body_weight#1-5000/1 arrival_date@ animal_age#0-60/1 animal_gender=gender daily_food#1-90/1
zoos; zoo; zoos; ; zoo_name=place city=city visitor_count#1000-990000/1000 land_area#1-900/1 ticket_price#2-60/1
farms; farm; farms; ; farm_name=place owner_name=person field_area#5-9000/5 main_crop=crop worker_count#1-200/1 soil_quality=level farm_region=region
harvests; harvest; harvests; farms; crop_type=crop harvest_date@ yield_tons#1-900/1 sale_price#10-900/5 harvest_season=season rain_amount#0-400/1
stations; station; stations; ; station_name=place line_color=color platform_count#1-20/1 daily_riders#100-90000/100 opened_date@ station_city=city
trains; train; trains; stations; train_name=planet train_type=vehicle max_speed#80-360/5 car_count#2-20/1 service_date@ fuel_type=fuel
apartments; apartment; apartments; buildings; tenant_name=person monthly_rent#300-6000/10 bedroom_count#0-6/1 floor_area#20-300/1 lease_date@ heating_type=fuel
buildings; building; buildings; ; building_name=place street_name=street floor_count#1-90/1 construction_year#1850-2024/1 owner_company=company wall_material=material
events; event; events; venues; event_title=title event_date@ ticket_price#5-400/5 guest_count#10-5000/10 event_type=music sponsor_name=company
venues; venue; venues; ; venue_name=place city=city seating_capacity#50-90000/50 rental_cost#100-20000/100 venue_type=category
artworks; artwork; artworks; ; artwork_title=title artist_name=person medium=material creation_year#1500-2024/1 insured_value#500-900000/500 display_room=grade
phones; phone; phones; ; phone_model=planet maker=brand screen_size#4-8/1 battery_capacity#2000-7000/100 retail_price#90-2000/10 release_date@ case_color=color
laptops; laptop; laptops; ; laptop_model=noun maker=brand memory_gigabytes#4-128/4 retail_price#300-6000/50 screen_width#11-18/1 warranty_years#1-5/1 case_material=material
insurance_policies; policy; policies; agents; policy_holder=person policy_type=category yearly_premium#100-9000/50 coverage_amount#1000-900000/1000 start_date@ policy_status=status
agents; agent; agents; ; agent_name=person sales_region=region commission_rate#1-30/1 deals_closed#0-400/1 join_date@
elections; election; elections; ; candidate_name=person party_color=color vote_count#100-990000/100 election_year#1950-2024/1 district=region turnout_percent#20-99/1
recipes; recipe; recipes; ; recipe_title=title cuisine_type=cuisine cooking_minutes#5-300/5 serving_count#1-20/1 difficulty=level chef_name=person calorie_total#50-3000/10
games; game; games; studios; game_title=title genre=genre release_date@ copies_sold#1000-990000/1000 platform=platform user_rating#1-10/1 age_limit#3-18/1
studios; studio; studios; ; studio_name=company headquarters=city staff_size#2-5000/1 founded_year#1970-2022/1
packages; package; packages; couriers; recipient_name=person destination_city=city package_weight#1-90/1 ship_date@ delivery_fee#2-200/1 package_status=status
couriers; courier; couriers; ; courier_name=company fleet_size#1-900/1 service_region=region on_time_percent#40-100/1
gyms; gym; gyms; ; gym_name=place city=city membership_fee#10-200/5 member_count#20-5000/10 opening_year#1970-2024/1 owner_name=person
workouts; workout; workouts; gyms; trainer_name=person workout_type=sport burned_calories#50-1500/10 session_minutes#10-180/5 session_date@ intensity=level
rivers; river; rivers; ; river_name=noun country=country total_length#10-6800/10 average_flow#1-9000/1 mouth_region=region
mountains; mountain; mountains; ; mountain_name=noun country=country peak_height#500-8800/10 first_ascent_year#1780-1990/1 climb_level=level
`

const heldOutTables = `
nurses; nurse; nurses; clinics; nurse_name=person hospital_ward=grade work_hours#0-60/1 monthly_bonus#10-900/10 start_date@ experience_level=level home_city=city
clinics; clinic; clinics; ; clinic_name=place city=city room_count#1-60/1 yearly_visitors#100-90000/100 opened_year#1900-2022/1
ships; ship; ships; harbors; ship_name=noun main_crop=crop crew_size#2-300/1 total_length#20-400/1 built_year#1920-2024/1 home_country=country wall_material=metal
harbors; harbor; harbors; ; harbor_name=place country=country platform_count#1-90/1 average_width#4-60/1 daily_fee#50-5000/50
podcasts; podcast; podcasts; ; podcast_title=title lead_person=person episode_count#1-900/1 daily_visitors#100-990000/100 launch_date@ spoken_language=language main_subject=subject
museum_guides; guide; guides; ; guide_name=person teaching_language=language visitor_total#1-900/1 hourly_rate#10-120/1 hire_date@ group_size#4-60/1
bridges; bridge; bridges; ; bridge_name=place home_city=city floor_length#20-3000/10 line_count#1-12/1 main_material=material completion_year#1800-2024/1 ticket_fee#0-30/1
satellites; satellite; satellites; agencies; satellite_name=planet launch_date@ peak_elevation#200-36000/100 total_weight#10-9000/10 project_status=status line_grade=grade
agencies; agency; agencies; ; agency_name=company country=country staff_count#20-20000/10 yearly_budget#1000-990000/1000
wines; wine; wines; vineyards; wine_name=title body_color=color harvest_year#1950-2023/1 retail_cost#5-900/1 rain_percent#8-16/1 quality_rating#50-100/1
vineyards; vineyard; vineyards; ; vineyard_name=place region=region land_size#1-900/1 owner_person=person soil_material=material
tickets; ticket; tickets; ; customer_person=person ticket_status=status ticket_level=level opened_date@ order_total#0-90/1 delivery_hours#0-300/1 product_brand=brand
bakeries; bakery; bakeries; ; bakery_name=place city=city worker_size#1-20/1 daily_orders#20-5000/10 menu_cost#3-90/1 chef_person=person
lighthouses; lighthouse; lighthouses; ; lighthouse_name=place station_region=region tower_height#5-90/1 engine_range#5-60/1 line_color=color construction_year#1750-1990/1
`

// sides holds the parsed pools of one split.
type sides struct {
	tables  []table
	byName  map[string]table
	joining []table // those with a parent
}

var pools = sync.OnceValue(func() map[Split]sides {
	train := parseTables(trainTables)
	return map[Split]sides{Train: train, HeldOut: parseTables(heldOutTables), Renamed: train}
})

// parseTables parses the constants above; a mistake in them is a panic, which
// every test meets.
func parseTables(src string) sides {
	s := sides{byName: map[string]table{}}
	for line := range strings.Lines(src) {
		f := strings.Split(strings.TrimSpace(line), ";")
		if len(f) == 1 {
			continue
		}
		for i := range f {
			f[i] = strings.TrimSpace(f[i])
		}
		t := table{name: f[0], one: f[1], many: f[2], parent: f[3]}
		for _, c := range strings.Fields(f[4]) {
			t.columns = append(t.columns, parseColumn(c))
		}
		s.tables = append(s.tables, t)
		s.byName[t.name] = t
	}
	for _, t := range s.tables {
		if t.parent == "" {
			continue
		}
		if _, ok := s.byName[t.parent]; !ok {
			panic(fmt.Sprintf("table %s refers to %s, which is not in its split", t.name, t.parent))
		}
		s.joining = append(s.joining, t)
	}
	return s
}

func parseColumn(src string) column {
	if name, ok := strings.CutSuffix(src, "@"); ok {
		return column{name: name, kind: date, lo: 1990, hi: 2024}
	}
	if name, v, ok := strings.Cut(src, "="); ok {
		return column{name: name, kind: text, vocabulary: v}
	}
	name, span, _ := strings.Cut(src, "#")
	span, step, _ := strings.Cut(span, "/")
	lo, hi, _ := strings.Cut(span, "-")
	return column{name: name, kind: number, lo: atoi(lo), hi: atoi(hi), st: atoi(step)}
}

func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(fmt.Sprintf("table definition: %v", err))
	}
	return n
}
